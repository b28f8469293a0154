// Contract of the probe family: small loops that show what a tier can reach at best, for `roofline doctor --measure`.
// Each call is one thread's work. `sink` takes a value that depends on all the work, so that no compiler can leave it out.
#pragma once

#include <cstdint>

#include "roofline/isa.h"

namespace roofline {

inline constexpr int kProbeStreams = 8;             // read side by side, as the decode kernels do (docs/kernels/linear.md)
inline constexpr int kProbePrefetchBytes = 1024;    // ahead of each stream
inline constexpr int kProbeChunkBytes = 256;        // of a stream at a time

struct ProbeKernels {
  // Reads [data, data + size_bytes), 64-byte aligned, in kProbeStreams streams; returns the bytes read, up to 8 chunks fewer.
  int64_t (*read)(const uint8_t* data, int64_t size_bytes, uint64_t* sink);
  // Rounds of independent multiply-add chains in registers; return the multiply-adds done.
  int64_t (*int8_macs)(int64_t num_rounds, uint64_t* sink);
  int64_t (*fp32_macs)(int64_t num_rounds, uint64_t* sink);
};

// plain_select.cpp: exactly tier `isa`, or null when it was not built. The caller has checked that the machine runs it.
const ProbeKernels* probe_kernels(Isa isa);

namespace ref { const ProbeKernels& probe_kernels(); }
namespace avx2 { const ProbeKernels& probe_kernels(); }
namespace avx512 { const ProbeKernels& probe_kernels(); }

}  // namespace roofline
