#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tpgm/kernels/gemm.h"

namespace tpgm::kernels {
namespace {

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("[tpgm] a GEMM failed in cuBLASLt: ") +
                             cublasLtGetStatusString(status));
}

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("[tpgm] CUDA failed while GEMMs were timed: ") +
                             cudaGetErrorString(error) +
                             "; it may be an earlier kernel's error, which CUDA_LAUNCH_BLOCKING=1 finds");
}

int current_device() {
  int device = 0;
  if (const auto error = cudaGetDevice(&device); error != cudaSuccess)
    throw std::runtime_error(std::string("[tpgm] CUDA does not say which device is current: ") +
                             cudaGetErrorString(error));
  return device;
}

// The handle of a device. It is never destroyed, because the driver may be gone before static objects are.
cublasLtHandle_t handle_of(int device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  auto& handle = handles[device];
  if (handle == nullptr) check(cublasLtCreate(&handle));
  return handle;
}

// A GEMM as cuBLASLt describes it: shapes and types, and of its pointers only that to the bias.
class Problem {
 public:
  explicit Problem(const Gemm& gemm) {
    // cuBLASLt is column-major: a row-major matrix is its transpose to cuBLASLt, and outᵀ = bᵀ · aᵀ.
    const auto layout = [](int64_t rows, int64_t cols, int64_t stride) {
      cublasLtMatrixLayout_t layout = nullptr;
      check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, cols, rows, stride));
      return layout;
    };
    const auto operand = [&](const Gemm::Operand& of, int64_t rows, int64_t cols) {
      return of.transposed ? layout(cols, rows, of.stride) : layout(rows, cols, of.stride);
    };
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto transposed = [](const Gemm::Operand& of) { return of.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(gemm.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(gemm.a));
    if (gemm.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm.bias);
    }
    a = operand(gemm.a, gemm.rows, gemm.inner);
    b = operand(gemm.b, gemm.inner, gemm.cols);
    out = layout(gemm.rows, gemm.cols, gemm.stride);
  }
  ~Problem() {
    for (auto* each : {a, b, out}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(operation);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, size_t workspace, int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(alignment, uint32_t{16});
    // Only algorithms that add partial sums in fp32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(handle, operation, b, a, out, out, preference, most,
                                                       found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    return algorithms;
  }

  // The algorithm with its other options. cuBLASLt seldom proposes them, and they are up to a tenth faster.
  std::vector<cublasLtMatmulAlgo_t> variants(cublasLtHandle_t handle,
                                             const cublasLtMatmulAlgo_t& algorithm) const {
    constexpr int32_t kMostOptions = 32;
    int32_t last = 0;
    size_t written = 0;
    std::vector<cublasLtMatmulAlgo_t> found;
    if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &last,
                                          sizeof(last), &written) != CUBLAS_STATUS_SUCCESS)
      return found;
    for (int32_t option = 0; option <= std::min(last, kMostOptions - 1); ++option) {
      auto other = algorithm;
      cublasLtMatmulHeuristicResult_t result{};
      if (cublasLtMatmulAlgoConfigSetAttribute(&other, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &option,
                                               sizeof(option)) == CUBLAS_STATUS_SUCCESS &&
          cublasLtMatmulAlgoCheck(handle, operation, b, a, out, out, &other, &result) ==
              CUBLAS_STATUS_SUCCESS &&
          result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kGemmWorkspace)
        found.push_back(other);
    }
    return found;
  }

  cublasStatus_t run(cublasLtHandle_t handle, const Gemm& gemm, const cublasLtMatmulAlgo_t& algorithm,
                     void* workspace, cudaStream_t stream) const {
    const float one = 1, kept = gemm.add ? 1 : 0;
    const auto status =
        cublasLtMatmul(handle, operation, &one, gemm.b.data, b, gemm.a.data, a, &kept, gemm.out, out,
                       gemm.out, out, &algorithm, workspace, kGemmWorkspace, stream);
    if (status != CUBLAS_STATUS_SUCCESS) cudaGetLastError();  // the status reports it
    return status;
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
};

// What an algorithm is chosen for: the device, the choice, and the GEMM without its pointers.
using Key = std::tuple<int, Choice, std::array<int64_t, 6>, std::array<bool, 4>>;

Key key_of(const Gemm& p, Choice choice) {
  return {current_device(),
          choice,
          {p.rows, p.cols, p.inner, p.a.stride, p.b.stride, p.stride},
          {p.a.transposed, p.b.transposed, p.bias != nullptr, p.add}};
}

// The algorithms that were chosen, for the whole process.
class Chosen {
 public:
  static Chosen& all() {
    static Chosen chosen;
    return chosen;
  }
  const cublasLtMatmulAlgo_t* find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = algorithms_.find(key);
    return found == algorithms_.end() ? nullptr : &found->second;  // values of std::map do not move
  }
  const cublasLtMatmulAlgo_t* keep(const Key& key, const cublasLtMatmulAlgo_t& algorithm) {
    const std::lock_guard lock(mutex_);
    return &algorithms_.emplace(key, algorithm).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

struct Event {
  Event() { check(cudaEventCreate(&event)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

struct Stream {
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t stream = nullptr;
};

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

// An algorithm, and how long it took each time.
struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  Graph in_a_row;
  std::vector<float> times;

  float median() const {
    auto sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// Times algorithms against each other, in a CUDA graph because that is how a step runs them: algorithms that
// clear counters first lose more time there than on a stream.
class Race {
 public:
  Race(const Problem& problem, const Gemm& gemm, cublasLtHandle_t handle, void* workspace,
       cudaStream_t stream)
      : problem_(problem), gemm_(gemm), handle_(handle), workspace_(workspace), stream_(stream) {}

  void enter(const cublasLtMatmulAlgo_t& algorithm) {
    const auto is_same = [&](const Candidate& each) {
      return std::ranges::equal(each.algorithm.data, algorithm.data);
    };
    if (std::ranges::any_of(candidates_, is_same)) return;
    const auto run_on = [&](cudaStream_t stream) {
      return problem_.run(handle_, gemm_, algorithm, workspace_, stream);
    };
    if (run_on(stream_) != CUBLAS_STATUS_SUCCESS) return;  // the first run loads its kernels
    check(cudaStreamBeginCapture(side_.stream, cudaStreamCaptureModeThreadLocal));
    auto status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < kInARow && status == CUBLAS_STATUS_SUCCESS; ++i) status = run_on(side_.stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    const bool made = cudaStreamEndCapture(side_.stream, &graph) == cudaSuccess &&
                      status == CUBLAS_STATUS_SUCCESS &&
                      cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
    if (graph != nullptr) cudaGraphDestroy(graph);
    if (made)
      candidates_.push_back({algorithm, Graph(executable), {}});
    else
      cudaGetLastError();  // clears the error of the capture; this algorithm is left out
  }

  // In turns, because a GPU's clock changes under load. Algorithms that are much slower are dropped early.
  void run() {
    for (auto& each : candidates_) each.times.clear();
    for (int round = 0; round < kRounds; ++round) {
      for (auto& each : candidates_) {
        check(cudaGraphLaunch(each.in_a_row.get(),
                              stream_));  // hides the launch of the next graph, which is timed
        check(cudaEventRecord(begin_.event, stream_));
        check(cudaGraphLaunch(each.in_a_row.get(), stream_));
        check(cudaEventRecord(end_.event, stream_));
        check(cudaEventSynchronize(end_.event));
        check(cudaEventElapsedTime(&each.times.emplace_back(), begin_.event, end_.event));
      }
      std::sort(candidates_.begin(), candidates_.end(),
                [](const Candidate& a, const Candidate& b) { return a.median() < b.median(); });
      if (round < kPatience) continue;
      const float limit = kHopeless * candidates_.front().median();
      std::erase_if(candidates_, [=](const Candidate& each) { return each.median() > limit; });
    }
  }

  // The fastest first.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  static constexpr int kRounds = 5, kInARow = 2;
  static constexpr int kPatience = 2;        // rounds before any algorithm is dropped
  static constexpr float kHopeless = 1.15F;  // times the best median: slower ones are dropped

  const Problem& problem_;
  const Gemm& gemm_;
  cublasLtHandle_t handle_;
  void* workspace_;
  cudaStream_t stream_;
  Stream side_;
  Event begin_, end_;
  std::vector<Candidate> candidates_;
};

}  // namespace

bool is_timed(const Gemm& gemm) { return Chosen::all().find(key_of(gemm, Choice::kFastest)) != nullptr; }

void time_algorithms(const Gemm& gemm, void* workspace, void* stream) {
  constexpr int kMost = 8;
  constexpr size_t kVaried = 4;
  const auto handle = handle_of(current_device());
  const Problem problem(gemm);
  Race race(problem, gemm, handle, workspace, static_cast<cudaStream_t>(stream));
  // Two lists, because algorithms without a workspace are seldom in the first.
  auto proposed = problem.proposals(handle, kGemmWorkspace, kMost);
  std::ranges::copy(problem.proposals(handle, 0, kMost), std::back_inserter(proposed));
  for (const auto& each : proposed) race.enter(each);
  if (race.candidates().empty()) {
    // None could be timed. The first is kept, so that this search is not repeated; if it cannot run,
    // multiply() throws.
    if (!proposed.empty()) Chosen::all().keep(key_of(gemm, Choice::kFastest), proposed.front());
    return;
  }
  race.run();

  std::vector<cublasLtMatmulAlgo_t> others;
  for (const auto& each : race.candidates() | std::views::take(kVaried))
    for (const auto& other : problem.variants(handle, each.algorithm)) others.push_back(other);
  for (const auto& each : others) race.enter(each);
  race.run();
  Chosen::all().keep(key_of(gemm, Choice::kFastest), race.candidates().front().algorithm);
}

void multiply(const Gemm& gemm, Choice choice, void* workspace, void* stream) {
  const auto handle = handle_of(current_device());
  const Problem problem(gemm);
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return problem.run(handle, gemm, algorithm, workspace, static_cast<cudaStream_t>(stream));
  };
  if (choice == Choice::kFastest) {
    // It may refuse operands that are less aligned than those of the timing.
    const auto* fastest = Chosen::all().find(key_of(gemm, Choice::kFastest));
    if (fastest != nullptr && run(*fastest) == CUBLAS_STATUS_SUCCESS) return;
  }
  const auto* first = Chosen::all().find(key_of(gemm, Choice::kFirst));
  if (first == nullptr) {
    const auto proposed = problem.proposals(handle, kGemmWorkspace, 1);
    if (proposed.empty()) check(CUBLAS_STATUS_NOT_SUPPORTED);
    first = Chosen::all().keep(key_of(gemm, Choice::kFirst), proposed.front());
  }
  check(run(*first));
}

}  // namespace tpgm::kernels
