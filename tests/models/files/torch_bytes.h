// Bytes of zip archives and of pickles as torch.save writes them, and of some that it would never write.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace shardline::torch_bytes {

// The lowest bytes of a number.
inline std::string number_bytes(uint64_t value, int bytes) {
  std::string text(bytes, '\0');
  for (int i = 0; i < bytes && i < 8; ++i) text[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

struct ZipEntry {
  std::string name, data;
  uint16_t method = 0, flags = 0;
};

// An archive of these entries. zip64: sizes and offsets are in the fields for large numbers.
inline std::string zip(const std::vector<ZipEntry>& entries, bool zip64 = false) {
  std::string archive, directory;
  for (const auto& [name, data, method, flags] : entries) {
    const size_t offset = archive.size();
    const std::string small = number_bytes(zip64 ? ~uint64_t{0} : data.size(), 4);
    std::string field;
    if (zip64)
      field = number_bytes(1, 2) + number_bytes(24, 2) + number_bytes(data.size(), 8) + number_bytes(data.size(), 8) +
              number_bytes(offset, 8);
    const std::string common = number_bytes(flags, 2) + number_bytes(method, 2) + number_bytes(0, 8) + small + small +
                               number_bytes(name.size(), 2);
    archive += "PK\3\4" + number_bytes(45, 2) + common + number_bytes(0, 2) + name + data;
    directory += "PK\1\2" + number_bytes(0, 2) + number_bytes(45, 2) + common + number_bytes(field.size(), 2) +
                 number_bytes(0, 10) + number_bytes(zip64 ? ~uint64_t{0} : offset, 4) + name + field;
  }
  const uint64_t begin = archive.size();
  archive += directory;
  if (zip64) {
    const uint64_t end = archive.size();
    archive += "PK\6\6" + number_bytes(44, 8) + number_bytes(45, 2) + number_bytes(45, 2) + number_bytes(0, 8) +
               number_bytes(entries.size(), 8) + number_bytes(entries.size(), 8) + number_bytes(directory.size(), 8) +
               number_bytes(begin, 8);
    archive += "PK\6\7" + number_bytes(0, 4) + number_bytes(end, 8) + number_bytes(1, 4);
  }
  return archive + "PK\5\6" + number_bytes(0, 4) + number_bytes(zip64 ? 0xffff : entries.size(), 2) +
         number_bytes(zip64 ? 0xffff : entries.size(), 2) + number_bytes(zip64 ? ~uint64_t{0} : directory.size(), 4) +
         number_bytes(zip64 ? ~uint64_t{0} : begin, 4) + number_bytes(0, 2);
}

// An archive of torch.save with this pickle and these storages, whose keys are "0", "1", ...
inline std::string archive(const std::string& pickle, const std::vector<std::string>& storages) {
  std::vector<ZipEntry> entries = {{"model/data.pkl", pickle}, {"model/byteorder", "little"}};
  for (size_t i = 0; i < storages.size(); ++i) entries.push_back({"model/data/" + std::to_string(i), storages[i]});
  return zip(entries);
}

// The opcodes that push a value.
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string text(const std::string& value) {
  return "X" + number_bytes(value.size(), 4) + value;
}
inline std::string integer(int64_t value) {
  return "\x8a\x08" + number_bytes(static_cast<uint64_t>(value), 8);
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string opcodes = "(";
  for (const auto& item : items) opcodes += item;
  return opcodes + "t";
}
inline std::string integers(std::initializer_list<int64_t> values) {
  std::vector<std::string> items;
  for (const auto value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string storage(const std::string& type, const std::string& key, int64_t elements) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(elements)}) + "Q";
}
inline std::string ordered_dict() {
  return global("collections", "OrderedDict") + ")R";
}
inline std::string tensor(const std::string& storage, int64_t offset, std::initializer_list<int64_t> sizes,
                          std::initializer_list<int64_t> strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({storage, integer(offset), integers(sizes), integers(strides), "\x89", ordered_dict()}) + "R";
}
// The pickle of a dict with one value.
inline std::string state_dict(const std::string& name, const std::string& value) {
  return "\x80\x02}" + text(name) + value + "s.";
}
// A file of the older format with this pickle, followed by `end`: the keys of the storages and the storages.
inline std::string older(const std::string& pickle, const std::string& end) {
  const std::string magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.", 25);
  return magic + pickle + end;
}

}  // namespace shardline::torch_bytes
