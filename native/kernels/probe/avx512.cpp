// Probe, tier avx512: int8 by vpdpbusd.
#include <immintrin.h>

#include "kernels/probe/contract.h"

namespace roofline::avx512 {
namespace {

constexpr int kChains = 16;

// By memory: GCC 12 warns about its own header in the reduce intrinsics.
uint64_t any_of(__m512i value) {
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, value);
  return words[0] + words[7];
}

int64_t read(const uint8_t* data, int64_t size_bytes, uint64_t* sink) {
  const int64_t num_chunks = (size_bytes / kProbeStreams / kProbeChunkBytes - 1) | 1;
  __m512i sum[4] = {};
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (int stream = 0; stream < kProbeStreams; ++stream) {
      const uint8_t* at = data + (stream * num_chunks + chunk) * kProbeChunkBytes;
      for (int offset = 0; offset < kProbeChunkBytes; offset += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + offset + kProbePrefetchBytes), _MM_HINT_T0);
        sum[offset / 64] = _mm512_add_epi64(sum[offset / 64], _mm512_load_si512(at + offset));
      }
    }
  }
  const __m512i total = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  *sink = any_of(total);
  return num_chunks * kProbeStreams * kProbeChunkBytes;
}

int64_t int8_macs(int64_t num_rounds, uint64_t* sink) {
  const __m512i codes = _mm512_set1_epi8(7), a = _mm512_set1_epi8(3);
  __m512i sum[kChains] = {};
  for (__m512i& total : sum) asm volatile("" : "+v"(total));  // equal chains would be merged into one
  for (int64_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 16
    for (__m512i& total : sum) total = _mm512_dpbusd_epi32(total, codes, a);
  *sink = 0;
  for (__m512i total : sum) *sink += any_of(total);
  return num_rounds * kChains * 64;
}

int64_t fp32_macs(int64_t num_rounds, uint64_t* sink) {
  const __m512 factor = _mm512_set1_ps(0.999f), step = _mm512_set1_ps(0.001f);
  __m512 sum[kChains] = {};
  for (__m512& total : sum) asm volatile("" : "+v"(total));  // equal chains would be merged into one
  for (int64_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 16
    for (__m512& total : sum) total = _mm512_fmadd_ps(total, factor, step);
  *sink = 0;
  for (__m512 total : sum) *sink += any_of(_mm512_castps_si512(total));
  return num_rounds * kChains * 16;
}

}  // namespace

const ProbeKernels& probe_kernels() {
  static constexpr ProbeKernels kKernels{&read, &int8_macs, &fp32_macs};
  return kKernels;
}

}  // namespace roofline::avx512
