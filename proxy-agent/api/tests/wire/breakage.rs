//! What of a descriptor another one no longer offers, or offers otherwise: changes that break
//! clients or servers that were built against the first.

use std::collections::BTreeMap;

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, ServiceDescriptorProto,
};

/// One sentence for each breakage; additions are none.
pub fn between(before: &FileDescriptorSet, now: &FileDescriptorSet) -> Vec<String> {
    let mut broken = Vec::new();
    let find = by_name(&now.file, FileDescriptorProto::name);
    for file in &before.file {
        match find.get(file.name()) {
            None => broken.push(format!("file {}: is gone", file.name())),
            Some(now) => compare_files(file, now, &mut broken),
        }
    }
    broken
}

fn by_name<T>(all: &[T], name: fn(&T) -> &str) -> BTreeMap<&str, &T> {
    all.iter().map(|one| (name(one), one)).collect()
}

fn compare_files(
    before: &FileDescriptorProto,
    now: &FileDescriptorProto,
    broken: &mut Vec<String>,
) {
    if before.package() != now.package() {
        broken.push(format!(
            "package {}: is called {} now",
            before.package(),
            now.package()
        ));
    }
    let messages = by_name(&now.message_type, DescriptorProto::name);
    for message in &before.message_type {
        match messages.get(message.name()) {
            None => broken.push(format!("message {}: is gone", message.name())),
            Some(now) => compare_messages(message, now, broken),
        }
    }
    let enums = by_name(&now.enum_type, EnumDescriptorProto::name);
    for one in &before.enum_type {
        match enums.get(one.name()) {
            None => broken.push(format!("enum {}: is gone", one.name())),
            Some(now) => compare_enums(one, now, broken),
        }
    }
    let services = by_name(&now.service, ServiceDescriptorProto::name);
    for service in &before.service {
        match services.get(service.name()) {
            None => broken.push(format!("service {}: is gone", service.name())),
            Some(now) => compare_services(service, now, broken),
        }
    }
}

/// What a number means, in all that matters on the wire or in generated code.
fn meaning<'a>(
    message: &'a DescriptorProto,
    field: &'a FieldDescriptorProto,
) -> (&'a str, i32, i32, &'a str, Option<&'a str>, bool) {
    let oneof = field
        .oneof_index
        .and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    (
        field.name(),
        field.r#type.unwrap_or_default(),
        field.label.unwrap_or_default(),
        field.type_name(),
        oneof.map(prost_types::OneofDescriptorProto::name),
        field.proto3_optional(),
    )
}

fn compare_messages(before: &DescriptorProto, now: &DescriptorProto, broken: &mut Vec<String>) {
    // An optional field is alone in a oneof of its own.
    let members = |message: &DescriptorProto| {
        let fields = message.field.iter();
        fields
            .filter(|field| field.oneof_index.is_some() && !field.proto3_optional())
            .count()
    };
    if members(now) > members(before) && !OPEN.contains(&before.name()) {
        broken.push(format!(
            "message {}: a oneof has new members, which clients that exist refuse or miss",
            before.name()
        ));
    }
    for field in &before.field {
        let name = format!("{}.{} = {}", before.name(), field.name(), field.number());
        match now.field.iter().find(|new| new.number == field.number) {
            None => broken.push(format!("{name}: is gone")),
            Some(new) if meaning(before, field) != meaning(now, new) => {
                broken.push(format!(
                    "{name}: was {:?}, is {:?}",
                    meaning(before, field),
                    meaning(now, new)
                ));
            }
            Some(_) => {}
        }
    }
}

/// Enums and oneofs that may grow: what a client does not know of them, it can do without.
const OPEN: [&str; 3] = ["Capability", "Item", "Key"];

fn compare_enums(
    before: &EnumDescriptorProto,
    now: &EnumDescriptorProto,
    broken: &mut Vec<String>,
) {
    if now.value.len() > before.value.len() && !OPEN.contains(&before.name()) {
        broken.push(format!(
            "enum {}: has new values, which clients that exist refuse",
            before.name()
        ));
    }
    for value in &before.value {
        let kept = |new: &prost_types::EnumValueDescriptorProto| {
            (new.name(), new.number()) == (value.name(), value.number())
        };
        if !now.value.iter().any(kept) {
            broken.push(format!(
                "{} = {}: is gone, or has another number",
                value.name(),
                value.number()
            ));
        }
    }
}

fn compare_services(
    before: &ServiceDescriptorProto,
    now: &ServiceDescriptorProto,
    broken: &mut Vec<String>,
) {
    for method in &before.method {
        if !now.method.iter().any(|new| new == method) {
            broken.push(format!(
                "{}/{}: is gone, or takes or returns something else",
                before.name(),
                method.name()
            ));
        }
    }
}

mod tests {
    use prost_types::field_descriptor_proto::Type;

    use super::*;

    fn descriptor() -> FileDescriptorSet {
        let all = protox::compile(
            ["culvert/node/v1/node.proto"],
            [concat!(env!("CARGO_MANIFEST_DIR"), "/proto")],
        );
        all.unwrap()
    }

    /// What is told once `change` was made.
    fn told(change: impl Fn(&mut FileDescriptorProto)) -> Vec<String> {
        let before = descriptor();
        let mut now = before.clone();
        let ours = now
            .file
            .iter_mut()
            .find(|file| file.package() == "culvert.node.v1");
        change(ours.unwrap());
        between(&before, &now)
    }

    fn message<'a>(file: &'a mut FileDescriptorProto, name: &str) -> &'a mut DescriptorProto {
        let mut all = file.message_type.iter_mut();
        all.find(|message| message.name() == name).unwrap()
    }

    #[test]
    fn every_breakage_is_told_once() {
        type Change = fn(&mut FileDescriptorProto);
        for (change, expected) in [
            (
                (|file| drop(message(file, "Endpoint").field.remove(1))) as Change,
                "Endpoint.port = 2: is gone",
            ),
            (
                |file| message(file, "Endpoint").field[1].number = Some(7),
                "Endpoint.port = 2: is gone",
            ),
            (
                |file| message(file, "Endpoint").field[1].set_type(Type::String),
                "Endpoint.port = 2: was",
            ),
            (
                |file| message(file, "Endpoint").field[1].name = Some("target".to_owned()),
                "Endpoint.port = 2: was",
            ),
            (
                |file| message(file, "Token").name = Some("Cursor".to_owned()),
                "message Token: is gone",
            ),
            (
                |file| message(file, "Item").field[3].oneof_index = None,
                "Item.diagnostics = 4: was",
            ),
            (
                |file| file.enum_type[0].value[1].number = Some(9),
                "CAPABILITY_SCTP = 1: is gone, or has another number",
            ),
            (
                |file| {
                    let mut value = file.enum_type[1].value[1].clone();
                    value.name = Some("PROTOCOL_DCCP".to_owned());
                    value.number = Some(4);
                    file.enum_type[1].value.push(value);
                },
                "enum Protocol: has new values",
            ),
            (
                |file| {
                    let mut field = message(file, "Node").field[5].clone();
                    field.name = Some("magic".to_owned());
                    field.number = Some(99);
                    message(file, "Node").field.push(field);
                },
                "message Node: a oneof has new members",
            ),
            (
                |file| file.service[0].method.truncate(2),
                "NodeApi/Report: is gone",
            ),
            (
                |file| file.service[0].method[0].server_streaming = Some(false),
                "NodeApi/Watch: is gone, or takes or returns something else",
            ),
        ] {
            let told = told(change);
            assert_eq!(told.len(), 1, "{expected}: {told:?}");
            assert!(told[0].starts_with(expected), "{expected}: {told:?}");
        }
    }

    #[test]
    fn additions_break_nobody() {
        assert_eq!(told(|_| {}), [""; 0]);
        assert_eq!(
            told(|file| {
                let mut field = message(file, "Endpoint").field[1].clone();
                field.name = Some("weight".to_owned());
                field.number = Some(3);
                message(file, "Endpoint").field.push(field);
                let mut kind = message(file, "Item").field[0].clone();
                kind.name = Some("firewall".to_owned());
                kind.number = Some(5);
                message(file, "Item").field.push(kind);
                let mut new = message(file, "Reset").clone();
                new.name = Some("Pause".to_owned());
                file.message_type.push(new);
            }),
            [""; 0]
        );
    }
}
