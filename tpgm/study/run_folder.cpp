// Files of a run, and how they continue after a kill.
#include "tpgm/study/run_folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/io/folder.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/train/event_file.h"
#include "tpgm/train/recipe.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using Json = RunFolder::Json;

constexpr const char* kEvents = "events.out.tfevents.0.tpgm";

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Lines that are appended, each as a whole.
class AppendedFile {
 public:
  AppendedFile(fs::path path, int64_t size) : path_(std::move(path)) {
    // O_NONBLOCK, because opening a pipe without a reader would block.
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    descriptor_ = uninterrupted([&] { return ::open(path_.c_str(), flags, 0666); });
    // After a power cut it may be shorter than it was.
    if (descriptor_ < 0 || !cut(std::min(size, this->size()))) fail(0);
  }
  ~AppendedFile() { ::close(descriptor_); }
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  void write(std::string_view text) {
    const int64_t before = size();
    const size_t needed = static_cast<size_t>(before) + text.size();
    while (!text.empty()) {
      const auto written = uninterrupted([&] { return ::write(descriptor_, text.data(), text.size()); });
      if (written <= 0) {
        const int error = errno;
        cut(before);
        errno = error;
        fail(needed);
      }
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  int64_t size() const {
    struct stat status {};
    return ::fstat(descriptor_, &status) == 0 ? status.st_size : 0;
  }

 private:
  bool cut(int64_t size) {
    return uninterrupted([&] { return ::ftruncate(descriptor_, size); }) == 0;
  }
  [[noreturn]] void fail(size_t needed) const {
    const int error = errno;
    const auto room = room_text(error, path_, needed);
    TORCH_CHECK(needed > 0 || !room.empty(), "[RunFolder] cannot write '", path_.string(),
                "': ", std::strerror(error), "; is it yours to write to?");
    throw WriteError(fmt::format("[RunFolder] cannot write '{}': {}{}; what was in it is intact",
                                 path_.string(), std::strerror(error), room));
  }

  fs::path path_;
  int descriptor_ = -1;
};

// The files of a run.
std::vector<fs::path> files_of(const fs::path& run) {
  return {result_of(run), weights_of(run),       last_weights_of(run), predictions_of(run),
          state_of(run),  run / "radii.json",    run / "log.jsonl",    run / "summary.csv",
          run / kEvents,  run / "bad_batch.txt", environment_of(run),  recipe_of(run)};
}

// Whether a run was killed in the folder before it saved anything: there is what it writes first, which it
// signed, and nothing that it did not write.
bool is_only_begun(const fs::path& path) {
  if (!read_environment(path) || read_environment(path)->version.empty()) return false;
  for (const auto& saved :
       {result_of(path), state_of(path), weights_of(path), last_weights_of(path), predictions_of(path)}) {
    if (fs::exists(saved)) return false;
  }
  const auto files = files_of(path);
  const auto entries = entries_of(path);
  return std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return is_leftover(entry) || std::find(files.begin(), files.end(), entry) != files.end();
  });
}

// A run must not replace the one that it begins from.
void check_needs_nothing_of(const fs::path& run, const TrainOptions& options) {
  const fs::path folder = fs::weakly_canonical(run);
  for (const auto& [key, value] : to_settings(options)) {
    if (key == "output" || !is_path(key, value)) continue;
    const fs::path way = fs::weakly_canonical(value).lexically_relative(folder);
    TORCH_CHECK(way.empty() || *way.begin() == "..", "`overwrite` would delete `", key, "` '", value,
                "'; take another folder as `output`");
  }
}

// Deletes the files of a run but those that are replaced at once: by its recipe the rest is known as a run, also after a
// kill and beside other files.
void remove_files(const fs::path& run) {
  for (const auto& file : files_of(run)) {
    if (file == environment_of(run) || file == recipe_of(run)) continue;
    std::error_code error;
    fs::remove(file, error);
    TORCH_CHECK(!error, "cannot delete '", file.string(), "': ", error.message());
  }
}

}  // namespace

// Two processes must not write to one run. Goes with the process, however that ends.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_CLOEXEC); })) {
    TORCH_CHECK(descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0,
                "another process is at work in '", folder.string(), "'");
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

struct RunFolder::Impl {
  fs::path path;
  std::unique_ptr<FolderLock> lock;
  std::unique_ptr<AppendedFile> log, summary;
  std::unique_ptr<EventFile> events;
  RadiusHistory radii;
  bool radii_changed = false;

  void histogram(const std::vector<double>& ratios, int64_t step) const {
    if (!ratios.empty()) events->histogram("ratios", ratios, 0, 1, 50, step, now());
  }
  void open_logs(int64_t log_size, int64_t summary_size, int64_t events_size) {
    log = std::make_unique<AppendedFile>(path / "log.jsonl", log_size);
    summary = std::make_unique<AppendedFile>(path / "summary.csv", summary_size);
    // It is the one file that is not needed: where it was lost, it begins anew.
    std::error_code ignored;
    const bool whole = fs::exists(path / kEvents, ignored) &&
                       static_cast<int64_t>(fs::file_size(path / kEvents, ignored)) >= events_size;
    events = std::make_unique<EventFile>(path / kEvents, whole ? events_size : 0);
  }
  void write_radii() {
    if (radii_changed) write_file(path / "radii.json", to_text(radii));
    radii_changed = false;
  }
};

RunFolder::RunFolder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RunFolder::RunFolder(RunFolder&&) noexcept = default;
RunFolder::~RunFolder() = default;

bool RunFolder::check_new(const fs::path& path, bool overwrite) try {
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  TORCH_CHECK(fs::is_directory(path), "`output` '", path.string(), "' is a file");
  if (is_only_begun(path) || (overwrite && is_run(path))) return true;
  if (is_run(path)) {
    TORCH_CHECK(!is_finished(path), "`output` '", path.string(),
                "' holds a finished run; take another folder, or replace it with `overwrite`");
    TORCH_CHECK(
        false, "`output` '", path.string(),
        "' holds an unfinished run; resume that run, take another folder, or replace it with `overwrite`");
  }
  const auto entries = entries_of(path);
  const bool empty = std::all_of(entries.begin(), entries.end(), is_leftover);
  TORCH_CHECK(empty, "`output` '", path.string(), "' is not empty",
              overwrite ? " and holds no run that `overwrite` could replace" : "", "; take another folder");
  return false;
} catch (...) {
  rethrow_from("RunFolder::check_new");
}

RunFolder RunFolder::create(const fs::path& path, const TrainOptions& options,
                            const RunEnvironment& environment, bool overwrite) try {
  check_new(path, overwrite);
  std::error_code error;
  fs::create_directories(path, error);
  TORCH_CHECK(!error, "`output`: cannot make '", path.string(), "': ", error.message());
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->lock = std::make_unique<FolderLock>(path);
  // Another process may have saved something since.
  if (check_new(path, overwrite)) {
    check_needs_nothing_of(path, options);
    remove_files(path);
  }
  remove_leftovers(path);
  write_file(environment_of(path), to_text(environment));
  write_file(recipe_of(path), to_toml(options));
  impl->open_logs(0, 0, 0);
  return RunFolder(std::move(impl));
} catch (...) {
  rethrow_from("RunFolder::create");
}

RunFolder RunFolder::open(const fs::path& path) try {
  TORCH_CHECK(is_run(path), "'", path.string(), "' is not a run folder: it has no recipe.toml");
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->lock = std::make_unique<FolderLock>(path);
  TORCH_CHECK(!is_finished(path), "'", path.string(), "' cannot be resumed: the run is finished");
  remove_leftovers(path);
  return RunFolder(std::move(impl));
} catch (...) {
  rethrow_from("RunFolder::open");
}

const fs::path& RunFolder::path() const { return impl_->path; }
fs::path RunFolder::state_path() const { return state_of(impl_->path); }

void RunFolder::log(const Json& line) { impl_->log->write(text_of(line) + "\n"); }

void RunFolder::epoch(const Json& row) {
  std::string names, values;
  for (const auto& [key, value] : row.items()) {
    if (!names.empty()) names += ',', values += ',';
    names += key;
    if (value.is_string()) {
      values += value.get<std::string>();
    } else if (!value.is_null()) {
      values += text_of(value);
    }
  }
  if (impl_->summary->size() == 0) impl_->summary->write(names + "\n");
  impl_->summary->write(values + "\n");
}

void RunFolder::scalar(const std::string& tag, double value, int64_t step) {
  // Names of tests are in it, and a string in the file must be UTF-8.
  impl_->events->scalar(printable(tag, kMaxPath), value, step, now());
}

void RunFolder::radii(int64_t step, const NamedNumbers& radii, const NamedNumbers& ratios,
                      std::optional<int64_t> radius_step) {
  auto& history = impl_->radii;
  if (radii.is_empty()) return;  // of a run that was stopped while it finished there are none any more
  if (!history.entries.empty() && history.entries.back().step == step) {
    // After the last step there may be nothing new, and what was recorded of a finish that was killed is
    // there already.
    const auto& last = history.entries.back().radius_step;
    if (!radius_step || (last && *last >= *radius_step)) return;
  }
  history.names = radii.keys();
  history.entries.push_back({step, radius_step, radii.values(), ratios.values()});
  impl_->radii_changed = true;
  impl_->histogram(ratios.values(), step);
}

void RunFolder::save_weights(const std::string& name, const NamedTensors& tensors, const Metadata& metadata) {
  impl_->write_radii();  // the radii of the final projection are lost once its weights are there
  save_safetensors(tensors, impl_->path / (name + ".safetensors"), metadata);
}

RunLog::Weights RunFolder::load_weights(const std::string& name) const {
  const SafetensorsFile file(impl_->path / (name + ".safetensors"));
  return {file.tensors(), file.metadata(), file.path()};
}

fs::path RunFolder::save_text(const std::string& name, const std::string& text) {
  const fs::path file = impl_->path / (name + ".txt");
  write_file(file, text);
  return file;
}

void RunFolder::save_predictions(const NamedTensors& tests) {
  save_safetensors(tests, predictions_of(impl_->path));
}

void RunFolder::save_state(const NamedTensors& tensors, Json numbers) {
  impl_->write_radii();
  numbers["radii"] = impl_->radii.entries.size();
  numbers["log_bytes"] = impl_->log->size();
  numbers["summary_bytes"] = impl_->summary->size();
  numbers["events_bytes"] = impl_->events->flush();
  Metadata metadata;
  keys::kState.set(metadata, text_of(numbers));
  save_safetensors(tensors, state_path(), metadata);
}

std::optional<RunFolder::State> RunFolder::load_state() try {
  const fs::path file = state_path();
  if (!fs::exists(file)) {
    impl_->open_logs(0, 0, 0);
    return std::nullopt;
  }
  const SafetensorsFile opened(file);
  State state;
  state.numbers = Json::parse(keys::kState.of(opened.metadata()), nullptr, false);
  const auto count = [&](const char* key) {
    const auto found = state.numbers.is_object() ? state.numbers.find(key) : state.numbers.end();
    TORCH_CHECK(found != state.numbers.end() && found->is_number_unsigned(), "'", file.string(),
                "' is damaged: it has no '", key, "' of a run's state; begin the run again with `overwrite`");
    return found->get<int64_t>();
  };
  const int64_t log = count("log_bytes"), summary = count("summary_bytes"), events = count("events_bytes"),
                step = count("step");
  state.tensors = opened.tensors();
  impl_->open_logs(log, summary, events);
  if (auto saved = read_radii(impl_->path)) {
    auto& entries = saved->entries;
    entries.erase(
        std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.step > step; }),
        entries.end());
    // What was recorded while the run finished comes after the last state: the events were cut back to before
    // it.
    const auto radii = state.numbers.contains("radii") ? static_cast<size_t>(count("radii")) : entries.size();
    for (size_t i = radii; i < entries.size(); ++i) impl_->histogram(entries[i].ratios, step);
    impl_->radii = *std::move(saved);
  }
  return state;
} catch (...) {
  rethrow_from("RunFolder::load_state");
}

void RunFolder::clean_up(const fs::path& path) try {
  const FolderLock lock(path);
  TORCH_CHECK(is_finished(path), "'", path.string(), "' is not finished");
  std::error_code ignored;
  fs::remove(state_of(path), ignored);
  remove_leftovers(path);
} catch (...) {
  rethrow_from("RunFolder::clean_up");
}

void RunFolder::finish(const Json& result) {
  impl_->write_radii();
  impl_->events->flush();
  Json all = result;
  if (const auto weights = weights_fingerprint(impl_->path); !weights.empty()) all["weights"] = weights;
  write_file(result_of(impl_->path), text_of(all, 2) + "\n");
  std::error_code ignored;
  fs::remove(state_path(), ignored);
}

}  // namespace tpgm
