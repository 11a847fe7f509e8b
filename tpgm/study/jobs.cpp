// Processes: starting them, waiting for them, ending them.
#include "tpgm/study/jobs.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/study/run_folder.h"
#include "tpgm/train/progress.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/test_paths.h"

extern char** environ;

namespace tpgm {
namespace {

namespace fs = std::filesystem;

fs::path beside(const Job& job, const char* suffix) { return job.settings.at("output") + suffix; }

// What decides a run, in full. What only says how fast it goes may change from one call to the next.
std::string recipe_text(const Settings& settings) {
  auto options = make_options(without(settings, Trait::kResumable));
  options.test = absolute_tests(options.test, test_folders(options.data_dir));  // older ones may be relative
  return to_toml(options);
}

// The first line of `a` that `b` has not.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream stream(b);
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  stream = std::istringstream(a);
  for (std::string line; std::getline(stream, line);) {
    if (!lines.contains(line)) return line;
  }
  return "fewer options";
}

void check_folder(const Job& job) {
  const fs::path file = beside(job, ".toml"), folder = job.settings.at("output");
  if (!fs::exists(file)) {
    TORCH_CHECK(!is_run(folder), "[run_jobs] '", folder.string(),
                "' holds a run that was not begun by a sweep; take another `output`");
    return;
  }
  const auto given = load_recipe(file);
  const auto before = recipe_text(given.settings), now = recipe_text(job.settings);
  TORCH_CHECK(
      before == now, "[run_jobs] '", folder.string(),
      "' holds a run of another recipe (it has: ", printable(first_difference(before, now), kMaxPath),
      "); take another `output`",
      given.version_010
          ? ", or `head` fresh and `head-lr` lr, which were the defaults of version 0.1.0 (also `every` 1, "
            "`radius-smoothing` 0 and `radius-mix` false, for `method` tpgm)"
          : "");
}

std::string last_line(const fs::path& file, const std::string& prefix) {
  std::ifstream stream(file, std::ios::binary);
  std::string last;
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \r") != std::string::npos) last = line;
  }
  if (last.empty()) return "it printed nothing that can be read";
  if (last.starts_with(prefix)) last.erase(0, prefix.size());
  return printable(last, 1024);
}

// Removes what a process left behind that was killed at the very end of the run.
void clean_up(const fs::path& run) {
  try {
    RunFolder::clean_up(run);
  } catch (const c10::Error&) {  // such as of another process at work in it: the result is there in any case
  }
}

class Runner {
 public:
  Runner(const std::vector<Job>& jobs, const JobOptions& options, const PlanContext& context)
      : jobs_(jobs),
        options_(options),
        side_by_side_(std::max<int64_t>(1, options.side_by_side)),
        context_(context),
        seconds_(context.seconds_before),
        timed_(context.work_before) {
    std::set<fs::path> folders;
    for (const auto& job : jobs_) {
      check_folder(job);
      folders.insert(fs::path(job.settings.at("output")).parent_path());
      results_.push_back({job, read_result(job.settings.at("output")), ""});
    }
    for (const auto& folder : folders) remove_leftovers(folder);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (results_[i].result) {
        note_seconds(jobs_[i], *results_[i].result);
        clean_up(jobs_[i].settings.at("output"));
      } else {
        waiting_.push_back(i);
      }
    }
    done_ = jobs_.size() - waiting_.size();
  }
  // Whatever ends this, no run continues unseen.
  ~Runner() { stop(); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  std::vector<JobResult> run() {
    if (done_ > 0 && !waiting_.empty())
      say(fmt::format("{} of {} runs are finished already", done_, jobs_.size()));
    while (!waiting_.empty() || !children_.empty()) {
      if (stop_asked()) {
        say("stopping; the runs save themselves");
        stop();
        TORCH_CHECK(false, "[run_jobs] interrupted: ", done_, " of ", jobs_.size(),
                    " runs are finished; the same command resumes");
      }
      start_some();
      look();
      if (options_.callbacks.progress && !children_.empty()) options_.callbacks.progress(progress());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return std::move(results_);
  }

 private:
  struct Child {
    size_t job;
    pid_t process;
    RunClock::Time begin = RunClock::now();
  };

  void start_some() {
    for (auto at = waiting_.begin();
         at != waiting_.end() && static_cast<int64_t>(children_.size()) < side_by_side_;) {
      at = start(*at) ? waiting_.erase(at) : at + 1;
    }
  }

  // False while another process makes the run: its log stays locked as long as any process writes to it, even
  // if the process that started the run was killed.
  bool start(size_t index) {
    const Job& job = jobs_[index];
    const fs::path folder = job.settings.at("output"), log = beside(job, ".log");
    std::error_code error;
    fs::create_directories(folder.parent_path(), error);
    const int descriptor =
        uninterrupted([&] { return ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
    const int reason = errno;
    const std::string room = room_text(reason, log, 0);
    TORCH_CHECK(descriptor >= 0, "[run_jobs] cannot write '", log.string(), "': ", std::strerror(reason),
                room,
                room.empty() ? "; take another `output`"
                             : "; finished runs are intact; make room, and the same command resumes");
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      ::close(descriptor);
      if (elsewhere_.insert(index).second) say(job.name + " is being made by another process");
      return false;
    }
    if (auto result = read_result(folder)) {  // another process has made it since we looked
      ::close(descriptor);
      finish(index, std::move(result), "");
      return true;
    }
    RunStart start{beside(job, ".toml"), folder, is_run(folder), only(job.settings, Trait::kResumable)};
    if (!start.resume) write_file(start.recipe, recipe_text(job.settings));
    if (const auto workers = start.settings.extract("workers"); !workers.empty() && workers.mapped() != "0") {
      start.settings["workers"] = workers.mapped();
    } else if (side_by_side_ > 1) {
      start.settings["workers"] = std::to_string(threads());
    }
    children_.push_back({index, spawn(options_.process(start), descriptor)});
    ::close(descriptor);
    return true;
  }

  int64_t threads() const {
    return std::max<int64_t>(1, static_cast<int64_t>(std::thread::hardware_concurrency()) / side_by_side_);
  }

  pid_t spawn(const Process& command, int log) const {
    std::vector<std::string> variables;
    bool given = side_by_side_ == 1;
    for (char** at = environ; *at != nullptr; ++at) {
      variables.emplace_back(*at);
      given = given || variables.back().starts_with("OMP_NUM_THREADS=");
    }
    if (!given) variables.push_back(fmt::format("OMP_NUM_THREADS={}", threads()));
    const auto pointers = [](const std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
      result.push_back(nullptr);
      return result;
    };
    const auto argv = pointers(command.arguments), envp = pointers(variables);
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    TORCH_CHECK(process >= 0, "[run_jobs] cannot start a process: ", std::strerror(errno));
    if (process > 0) return process;
    // Between fork and exec only what is safe in a signal handler.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a run without its sweep saves itself and ends
    if (::getppid() != parent) ::_exit(1);
    // Ctrl-C is for the sweep, which passes it on: a run that heard it twice would not save.
    ::setpgid(0, 0);
    const int none = ::open("/dev/null", O_RDONLY);
    ::dup2(none, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execve(command.program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }

  void look() {
    for (auto at = children_.begin(); at != children_.end();) {
      int status = 0;
      const pid_t ended = ::waitpid(at->process, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) {
        ++at;
        continue;
      }
      const size_t index = at->job;
      at = children_.erase(at);
      ended_with(index, status);
    }
  }

  void ended_with(size_t index, int status) {
    const Job& job = jobs_[index];
    std::optional<RunResult> result;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) result = read_result(job.settings.at("output"));
    if (!result && stop_asked()) return;  // stopped, not failed
    std::string error;
    if (!result) {
      error = WIFSIGNALED(status)
                  ? fmt::format("ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                  : last_line(beside(job, ".log"), options_.log_prefix);
    }
    finish(index, std::move(result), error);
  }

  void finish(size_t index, std::optional<RunResult> result, const std::string& error) {
    const Job& job = jobs_[index];
    ++done_;
    const auto count = fmt::format("({}/{})", context_.before + done_, all());
    if (result) {
      say(fmt::format("{}: {} {}", job.name,
                      std::isfinite(result->selection) ? fmt::format("selection {:.2f} %", result->selection)
                                                       : "finished",
                      count));
      note_seconds(job, *result);
    } else {
      say(fmt::format("{} failed: {} [{}] {}", job.name, error, beside(job, ".log").string(), count));
    }
    results_[index].result = std::move(result);
    results_[index].error = error;
  }

  size_t all() const { return context_.before + jobs_.size() + context_.after; }

  void say(const std::string& text) const {
    if (options_.callbacks.say) options_.callbacks.say(text);
  }
  bool stop_asked() const { return options_.callbacks.stop && options_.callbacks.stop(); }

  void note_seconds(const Job& job, const RunResult& result) {
    if (result.seconds == 0) return;
    seconds_ += result.seconds;
    timed_ += job.work;
  }

  JobsProgress progress() const {
    JobsProgress at{context_.before + done_, all(), {}, std::nullopt};
    for (const auto& child : children_) at.running.push_back(jobs_[child.job].name);
    if (timed_ == 0) return at;
    const double each = seconds_ / timed_;  // of a unit of work
    double seconds = each * context_.work_after;
    for (const size_t i : waiting_) seconds += each * jobs_[i].work;
    for (const auto& child : children_)
      seconds += std::max(0.0, each * jobs_[child.job].work - RunClock::since(child.begin));
    at.seconds_left = seconds / static_cast<double>(side_by_side_);
    return at;
  }

  void stop() {
    for (const auto& child : children_) ::kill(child.process, SIGTERM);
    for (const auto& child : children_) {
      while (::waitpid(child.process, nullptr, 0) < 0 && errno == EINTR) {
      }
      if (is_finished(jobs_[child.job].settings.at("output"))) ++done_;
    }
    children_.clear();
  }

  const std::vector<Job>& jobs_;
  const JobOptions& options_;
  int64_t side_by_side_;
  PlanContext context_;
  std::vector<JobResult> results_;
  std::vector<size_t> waiting_;
  std::vector<Child> children_;
  std::set<size_t> elsewhere_;  // runs that another process was found to make
  size_t done_ = 0;
  double seconds_, timed_;  // of runs that are finished, and their work
};

}  // namespace

std::vector<JobResult> run_jobs(const std::vector<Job>& jobs, const JobOptions& options,
                                const PlanContext& context) {
  return Runner(jobs, options, context).run();
}

}  // namespace tpgm
