/*
 * What GCC's unwinder asks the C library for, and does not get of a static musl.
 *
 * First, where the unwinding tables of the code at an address are, which musl lacks. A static
 * program has one object, whose program headers tell. Then functions for threads, to which the
 * unwinder refers weakly, because with glibc they are always there: from an archive nothing is taken
 * for a weak reference, and the first panic would call address 0.
 *
 * The structure is that of glibc 2.35 on 64-bit machines (its manual, "Dynamic Linker
 * Introspection"), which is what Debian's GCC is built with.
 */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stddef.h>

struct dl_find_object {
	unsigned long long flags;
	void *map_start;
	void *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[7];
};

int _dl_find_object(void *address, struct dl_find_object *result);

struct search {
	const char *address;
	struct dl_find_object *result;
};

static int look(struct dl_phdr_info *object, size_t size, void *data)
{
	struct search *search = data;
	char *tables = NULL, *start = NULL, *end = NULL;

	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		char *from = (char *)(object->dlpi_addr + part->p_vaddr);
		char *to = from + part->p_memsz;

		if (part->p_type == PT_GNU_EH_FRAME)
			tables = from;
		if (part->p_type == PT_LOAD && search->address >= from && search->address < to) {
			start = from;
			end = to;
		}
	}
	if (!tables || !start)
		return 0;
	*search->result = (struct dl_find_object){
		.map_start = start,
		.map_end = end,
		.eh_frame = tables,
	};
	return 1;
}

int _dl_find_object(void *address, struct dl_find_object *result)
{
	struct search search = { address, result };

	return dl_iterate_phdr(look, &search) ? 0 : -1;
}

/* Every one that it may call. */
__attribute__((used)) static void *const linked[] = {
	pthread_once,
	pthread_mutex_lock,
	pthread_mutex_unlock,
	pthread_key_create,
	pthread_getspecific,
	pthread_setspecific,
};
