//! Whether a value is as a schema of the description says. Just the words that the description uses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(place) => resolved(document, document.pointer(place.trim_start_matches('#')).expect(place)),
        None => schema,
    }
}

/// The properties of an object with those of the parts that it is made of, and which must be there.
fn properties<'a>(document: &'a Value, schema: &'a Value) -> (BTreeMap<&'a str, &'a Value>, BTreeSet<&'a str>) {
    let schema = resolved(document, schema);
    let (mut known, mut required) = (BTreeMap::new(), BTreeSet::new());
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let (more, more_required) = properties(document, part);
        known.extend(more);
        required.extend(more_required);
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    known.extend(own.map(|(name, schema)| (name.as_str(), schema)));
    required.extend(
        schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str),
    );
    (known, required)
}

/// What is not as described, each with its place.
pub(super) fn mismatches(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let schema = resolved(document, schema);
    let wrong = |what: &str| vec![format!("{place}: {what}: {value} for {schema}")];
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let fits = choices
                .iter()
                .any(|one| mismatches(document, one, value, place).is_empty());
            return if fits { Vec::new() } else { wrong("fits no choice") };
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return if words.contains(value) {
            Vec::new()
        } else {
            wrong("is none of the words")
        };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one],
        _ => Vec::new(),
    };
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    let fits = types.contains(&is) || is == "integer" && types.contains(&"number");
    if !types.is_empty() && !fits {
        return wrong("has another type");
    }
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .flat_map(|(index, item)| mismatches(document, &schema["items"], item, &format!("{place}/{index}")))
                .collect()
        }
        Value::Object(fields) => object(document, schema, fields, place),
        _ => Vec::new(),
    }
}

fn object(document: &Value, schema: &Value, fields: &serde_json::Map<String, Value>, place: &str) -> Vec<String> {
    let (known, required) = properties(document, schema);
    let rest = &schema["additionalProperties"];
    if known.is_empty() && !rest.is_object() {
        return Vec::new(); // Any object.
    }
    let missing = required.iter().filter(|name| !fields.contains_key(**name));
    let mut found: Vec<String> = missing.map(|name| format!("{place}/{name}: is missing")).collect();
    for (name, value) in fields {
        let place = format!("{place}/{name}");
        match known.get(name.as_str()) {
            Some(schema) => found.extend(mismatches(document, schema, value, &place)),
            None if rest.is_object() => found.extend(mismatches(document, rest, value, &place)),
            None => found.push(format!("{place}: is not described")),
        }
    }
    found
}

#[test]
fn what_differs_is_found() {
    let document = serde_json::json!({"a": {"type": "object", "required": ["b"], "properties": {
        "b": {"type": "integer"}, "c": {"oneOf": [{"type": "null"}, {"enum": ["d"]}]}}},
        "e": {"allOf": [{"$ref": "#/a"}, {"type": "object", "properties": {"f": {"type": ["array", "null"], "items": {"type": "string"}}}}]}});
    let count = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        mismatches(&document, &document["e"], &value, "").len()
    };
    for good in [
        r#"{"b":1}"#,
        r#"{"b":1,"c":"d","f":null}"#,
        r#"{"b":1,"c":null,"f":["g"]}"#,
    ] {
        assert_eq!(count(good), 0, "{good}");
    }
    for bad in [
        "{}",
        r#"{"b":"1"}"#,
        r#"{"b":1.5}"#,
        r#"{"b":1,"c":"x"}"#,
        r#"{"b":1,"f":[1]}"#,
        r#"{"b":1,"g":1}"#,
    ] {
        assert_eq!(count(bad), 1, "{bad}");
    }
}
