"""What a run has recorded, except for what differs between two runs that compute the same bits."""
import json
import struct

MEASURED = {"step_seconds", "tokens_per_second", "samples_per_second", "bubble_fraction",
            "exposed_communication_fraction", "peak_memory_bytes"}


def metrics(folder):
    """The complete lines of metrics.jsonl; a killed run may leave half of one."""
    lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    return [{key: value for key, value in json.loads(line).items() if key not in MEASURED} for line in lines]


def scalars(folder):
    """(step, tag, value as text, in which nan equals nan) of all TensorBoard event files, sorted."""
    found = []
    for file in folder.glob("events.out.tfevents.*"):
        rest = file.read_bytes()
        while len(rest) >= 12:
            (length,) = struct.unpack_from("<Q", rest)
            found += scalars_of(rest[12:12 + length])
            rest = rest[16 + length:]
    return sorted(entry for entry in found if entry[1].split("/")[-1] not in MEASURED)


def scalars_of(event):
    """Values of a tensorflow.Event {2 step, 5 summary {1 value {1 tag, 2 simple_value}}}."""
    step, values = 0, []
    for field, value in fields(event):
        if field == 2:
            step = value
        elif field == 5:
            values += [dict(fields(each)) for _, each in fields(value)]
    return [(step, value[1].decode(), str(struct.unpack("<f", value[2])[0])) for value in values]


def fields(message):
    """(number, value) of a message in protobuf's wire format."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size
