// Probe, tier ref: plain loops, as fast as the compiler makes them without ISA flags.
#include "kernels/probe/contract.h"

#include <cstring>

namespace roofline::ref {
namespace {

constexpr int kChains = 64;

int64_t read(const uint8_t* data, int64_t size_bytes, uint64_t* sink) {
  // An odd number of chunks keeps the streams from falling on the same cache sets.
  const int64_t num_chunks = (size_bytes / kProbeStreams / kProbeChunkBytes - 1) | 1;
  uint64_t sum[4] = {};
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (int stream = 0; stream < kProbeStreams; ++stream) {
      const uint8_t* at = data + (stream * num_chunks + chunk) * kProbeChunkBytes;
      for (int offset = 0; offset < kProbeChunkBytes; offset += 64) __builtin_prefetch(at + offset + kProbePrefetchBytes);
      uint64_t words[kProbeChunkBytes / 8];
      std::memcpy(words, at, sizeof words);
      for (int i = 0; i < kProbeChunkBytes / 8; ++i) sum[i % 4] += words[i];
    }
  }
  *sink = sum[0] + sum[1] + sum[2] + sum[3];
  return num_chunks * kProbeStreams * kProbeChunkBytes;
}

int64_t int8_macs(int64_t num_rounds, uint64_t* sink) {
  int8_t a[kChains], b[kChains];
  int32_t sums[kChains] = {};
  for (int i = 0; i < kChains; ++i) a[i] = static_cast<int8_t>(i), b[i] = static_cast<int8_t>(2 * i + 1);
  for (int64_t round = 0; round < num_rounds; ++round) {
    asm volatile("" : "+m"(a));
    for (int i = 0; i < kChains; ++i) sums[i] += int32_t{a[i]} * b[i];
  }
  *sink = 0;
  for (int32_t sum : sums) *sink += static_cast<uint64_t>(sum);
  return num_rounds * kChains;
}

int64_t fp32_macs(int64_t num_rounds, uint64_t* sink) {
  float sums[kChains] = {};
  asm volatile("" : "+m"(sums));  // equal chains would be merged into one
  for (int64_t round = 0; round < num_rounds; ++round)
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * 0.999f + 0.001f;
  *sink = 0;
  for (float sum : sums) *sink += sum > 0.5f;
  return num_rounds * kChains;
}

}  // namespace

const ProbeKernels& probe_kernels() {
  static constexpr ProbeKernels kKernels{&read, &int8_macs, &fp32_macs};
  return kKernels;
}

}  // namespace roofline::ref
