// For tests: paths that the machine at hand would not take. Not installed.
#pragma once

namespace tpgm {

/// While it lives, this thread's fp32 products run in oneDNN on every CPU, the small ones too.
class AlwaysOneDnn {
 public:
  AlwaysOneDnn();
  ~AlwaysOneDnn();
  AlwaysOneDnn(const AlwaysOneDnn&) = delete;
  AlwaysOneDnn& operator=(const AlwaysOneDnn&) = delete;
};

/// While it lives, fuses_stream() and fuses_columns() (residual.h) are true on the CPU too, in this thread.
class FuseOnCpu {
 public:
  FuseOnCpu();
  ~FuseOnCpu();
  FuseOnCpu(const FuseOnCpu&) = delete;
  FuseOnCpu& operator=(const FuseOnCpu&) = delete;
};

}  // namespace tpgm
