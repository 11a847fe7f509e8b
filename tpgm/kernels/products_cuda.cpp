#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tpgm/kernels/products.h"

namespace tpgm::kernels {
namespace {

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("[tpgm] a matrix product failed in cuBLASLt: ") +
                             cublasLtGetStatusString(status));
}

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("[tpgm] a matrix product could not be timed: ") +
                             cudaGetErrorString(error));
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device));
  return device;
}

/// Of a device; it lives as long as the process, as the driver may be gone before static objects are.
cublasLtHandle_t handle_of(int device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  auto& handle = handles[device];
  if (handle == nullptr) check(cublasLtCreate(&handle));
  return handle;
}

/// What cuBLASLt has to know of a product, without its pointers but the bias's.
class Problem {
 public:
  explicit Problem(const Product& product) {
    // cuBLASLt counts by columns: what lies row by row is the transpose to it, and outᵀ = bᵀ · aᵀ.
    const auto layout = [](std::int64_t rows, std::int64_t cols, std::int64_t stride) {
      cublasLtMatrixLayout_t layout = nullptr;
      check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, cols, rows, stride));
      return layout;
    };
    const auto operand = [&](const Product::Operand& of, std::int64_t rows, std::int64_t cols) {
      return of.transposed ? layout(cols, rows, of.stride) : layout(rows, cols, of.stride);
    };
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto transposed = [](const Product::Operand& of) {
      return of.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(product.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(product.a));
    if (product.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    }
    a = operand(product.a, product.rows, product.inner);
    b = operand(product.b, product.inner, product.cols);
    out = layout(product.rows, product.cols, product.stride);
  }
  ~Problem() {
    for (auto* each : {a, b, out}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(operation);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::vector<cublasLtMatmulAlgo_t> proposals(cublasLtHandle_t handle, std::size_t workspace,
                                              int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace));
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(alignment, std::uint32_t{16});
    // Parts of a sum are added in fp32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(handle, operation, b, a, out, out, preference, most,
                                                       found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    }
    return algorithms;
  }

  void run(cublasLtHandle_t handle, const Product& product, const cublasLtMatmulAlgo_t* algorithm,
           void* workspace, cudaStream_t stream) const {
    const float one = 1, kept = product.add ? 1 : 0;
    check(cublasLtMatmul(handle, operation, &one, product.b.data, b, product.a.data, a, &kept, product.out,
                         out, product.out, out, algorithm, workspace, kProductWorkspace, stream));
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
};

/// Of a product, and how its algorithm was chosen.
using Key = std::tuple<int, Choice, std::array<std::int64_t, 6>, std::array<bool, 4>>;

Key key_of(const Product& p, Choice choice) {
  return {current_device(),
          choice,
          {p.rows, p.cols, p.inner, p.a.stride, p.b.stride, p.stride},
          {p.a.transposed, p.b.transposed, p.bias != nullptr, p.add}};
}

/// The algorithms that were chosen.
class Chosen {
 public:
  static Chosen& all() {
    static Chosen chosen;
    return chosen;
  }
  const cublasLtMatmulAlgo_t* find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = algorithms_.find(key);
    return found == algorithms_.end() ? nullptr : &found->second;  // a map's values stay where they are
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

/// An algorithm and how long it took, each time.
struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  std::vector<float> times;

  float median() const {
    auto sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

}  // namespace

bool is_timed(const Product& product) {
  return Chosen::all().find(key_of(product, Choice::kFastest)) != nullptr;
}

void time_algorithms(const Product& product, void* workspace, void* stream) {
  constexpr int kMost = 8, kRounds = 7, kInARow = 3;
  constexpr float kHopeless = 1.3F;  // times the best, after the first rounds
  const auto handle = handle_of(current_device());
  const auto queue = static_cast<cudaStream_t>(stream);
  const Problem problem(product);
  std::vector<Candidate> candidates;
  // Two lists, as what needs no workspace is seldom on the first.
  for (const auto bytes : {kProductWorkspace, std::size_t{0}}) {
    for (const auto& each : problem.proposals(handle, bytes, kMost)) candidates.push_back({each, {}});
  }
  if (candidates.empty()) return;

  const Event begin, end;
  for (int round = 0; round < kRounds; ++round) {  // in turns: a GPU's clock moves while it works
    for (auto& each : candidates) {
      check(cudaEventRecord(begin.event, queue));
      for (int i = 0; i < kInARow; ++i) problem.run(handle, product, &each.algorithm, workspace, queue);
      check(cudaEventRecord(end.event, queue));
      check(cudaEventSynchronize(end.event));
      check(cudaEventElapsedTime(&each.times.emplace_back(), begin.event, end.event));
    }
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.median() < b.median(); });
    if (round > 0) {  // the first loads kernels
      const float limit = kHopeless * candidates.front().median();
      std::erase_if(candidates, [=](const Candidate& each) { return each.median() > limit; });
    }
  }
  Chosen::all().keep(key_of(product, Choice::kFastest), candidates.front().algorithm);
}

void multiply(const Product& product, Choice choice, void* workspace, void* stream) {
  const auto handle = handle_of(current_device());
  const Problem problem(product);
  const auto* algorithm = Chosen::all().find(key_of(product, choice));
  if (algorithm == nullptr) {
    const auto first = problem.proposals(handle, kProductWorkspace, 1);
    if (first.empty()) check(CUBLAS_STATUS_NOT_SUPPORTED);
    algorithm = Chosen::all().keep(key_of(product, Choice::kFirst), first.front());
  }
  problem.run(handle, product, algorithm, workspace, static_cast<cudaStream_t>(stream));
}

}  // namespace tpgm::kernels
