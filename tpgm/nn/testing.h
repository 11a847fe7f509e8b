// For tests: forces code paths that the machine would not choose. Not installed.
#pragma once

namespace tpgm {

/// While an object lives, all fp32 GEMMs of its thread run in oneDNN, on every CPU and whatever their size.
class AlwaysOneDnn {
 public:
  AlwaysOneDnn();
  ~AlwaysOneDnn();
  AlwaysOneDnn(const AlwaysOneDnn&) = delete;
  AlwaysOneDnn& operator=(const AlwaysOneDnn&) = delete;
};

/// While an object lives, fuses_stream() and fuses_columns() (residual.h) are true on the CPU, too, in its
/// thread.
class FuseOnCpu {
 public:
  FuseOnCpu();
  ~FuseOnCpu();
  FuseOnCpu(const FuseOnCpu&) = delete;
  FuseOnCpu& operator=(const FuseOnCpu&) = delete;
};

}  // namespace tpgm
