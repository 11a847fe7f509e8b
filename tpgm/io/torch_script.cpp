// Walks the attributes of a scripted module in order; the source of its class lists which are parameters.
#include "tpgm/io/torch_script.h"

namespace tpgm {
namespace {

constexpr size_t kMaxSource = size_t{8} << 20;
constexpr size_t kMaxName = 4096;
constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxVisits = 1'000'000;

struct ScriptClass {
  bool is_module = false;
  std::set<std::string, std::less<>> state;  // names of parameters and buffers
};

// Source text as LibTorch prints it: "class Linear(Module):", then "  __parameters__ = ["weight", ]" and the
// same for __buffers__.
std::unordered_map<std::string, ScriptClass> classes_in(std::string_view source, MemoryBudget& budget) {
  std::unordered_map<std::string, ScriptClass> classes;
  ScriptClass* current = nullptr;
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size());
    std::string_view line = source.substr(0, end);
    source.remove_prefix(std::min(end + 1, source.size()));
    if (line.starts_with("class ")) {
      budget.charge(line.size() + 160);
      const size_t open = line.find('(');
      current = &classes[std::string(line.substr(6, open == std::string_view::npos ? open : open - 6))];
      current->is_module = line.find("(Module)") != std::string_view::npos;
    } else if (current != nullptr &&
               (line.starts_with("  __parameters__ = [") || line.starts_with("  __buffers__ = ["))) {
      for (size_t quote = line.find('"'); quote != std::string_view::npos; quote = line.find('"', quote)) {
        const size_t close = line.find('"', quote + 1);
        if (close == std::string_view::npos) break;
        budget.charge(close - quote + 96);
        current->state.emplace(line.substr(quote + 1, close - quote - 1));
        quote = close + 1;
      }
    }
  }
  return classes;
}

class Walker {
 public:
  Walker(const pickle::TorchHost& host, const ZipArchive& archive, const std::string& root,
         MemoryBudget& budget)
      : host_(host), archive_(archive), code_(root + "/code/"), budget_(budget) {}

  // Parameters and buffers of a module come before those of its submodules, as in Python.
  void walk(const pickle::Object& module, size_t depth) {
    require(depth < kMaxDepth, "its modules are nested more than {} deep", kMaxDepth);
    if (module.state == nullptr) return;
    // A module may have many names, and so may its children.
    visits_ += module.state->items.size();
    require(visits_ < kMaxVisits, "it has more than {} modules and attributes", kMaxVisits);
    const ScriptClass& type = class_of(module.type);
    for (const auto& [key, value] : module.state->items) {
      const auto* name = std::get_if<pickle::Text>(&key);
      const auto* tensor = host_.tensor(value);
      if (name == nullptr || tensor == nullptr || !type.state.contains(name->view)) continue;
      budget_.charge(prefix_.size() + name->view.size() + 256);
      found.emplace_back(prefix_ + std::string(name->view), tensor);
    }
    for (const auto& [key, value] : module.state->items) {
      const auto* name = std::get_if<pickle::Text>(&key);
      const auto* child = host_.script_object(value);
      if (name == nullptr || child == nullptr || !class_of(child->type).is_module) continue;
      budget_.charge(2 * name->view.size());
      const size_t end = prefix_.size();
      prefix_.append(name->view) += '.';
      walk(*child, depth + 1);
      prefix_.resize(end);
    }
  }

  std::vector<std::pair<std::string, const pickle::StoredTensor*>> found;

 private:
  // "__torch__.torch.nn.modules.conv.Conv2d" is in code/__torch__/torch/nn/modules/conv.py.
  const ScriptClass& class_of(const pickle::Global& type) {
    // Cached, because every attribute looks it up.
    require(type.module.size() + type.name.size() <= kMaxName, "a class's name has more than {} bytes",
            kMaxName);
    auto [file, fresh] = files_.try_emplace(type.module);
    if (fresh) {
      std::string path = type.module;
      for (char& letter : path) letter = letter == '.' ? '/' : letter;
      path = code_ + path + ".py";
      budget_.charge(path.size() + 128);
      if (archive_.contains(path)) {
        const std::string source = archive_.text(path, kMaxSource);
        budget_.charge(source.size());
        file->second = classes_in(source, budget_);
      }
    }
    const auto found_class = file->second.find(type.name);
    require(found_class != file->second.end(), "the archive has no code for the class '{}'",
            printable(type.full()));
    return found_class->second;
  }

  const pickle::TorchHost& host_;
  const ZipArchive& archive_;
  std::string code_;
  MemoryBudget& budget_;
  std::string prefix_;  // one string for all depths, because the sum of their lengths could be large
  size_t visits_ = 0;
  std::unordered_map<std::string, std::unordered_map<std::string, ScriptClass>> files_;
};

}  // namespace

std::vector<std::pair<std::string, const pickle::StoredTensor*>> script_state(const pickle::Object& module,
                                                                              const pickle::TorchHost& host,
                                                                              const ZipArchive& archive,
                                                                              const std::string& root,
                                                                              MemoryBudget& budget) {
  Walker walker(host, archive, root, budget);
  walker.walk(module, 0);
  return std::move(walker.found);
}

}  // namespace tpgm
