/*
 * The one function of bcryptprimitives.dll that Rust's standard library calls. Windows has it;
 * wine does not have the library, so `cargo xtask windows` builds this one and puts it beside
 * the program. For tests only.
 */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count)
{
    /* RtlGenRandom counts in 32 bits. */
    const ULONG most = 1 << 20;

    while (count > 0) {
        ULONG now = count < most ? (ULONG)count : most;

        if (!RtlGenRandom(bytes, now))
            return FALSE;
        bytes += now;
        count -= now;
    }
    return TRUE;
}
