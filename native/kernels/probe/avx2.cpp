// Probe, tier avx2: int8 by vpmaddubsw + vpmaddwd, the exact pair that the kernels use.
#include <immintrin.h>

#include "kernels/probe/contract.h"

namespace roofline::avx2 {
namespace {

constexpr int kChains = 12;        // two FMA ports at four cycles need eight; sixteen registers hold twelve and the operands

int64_t read(const uint8_t* data, int64_t size_bytes, uint64_t* sink) {
  const int64_t num_chunks = (size_bytes / kProbeStreams / kProbeChunkBytes - 1) | 1;
  __m256i sum[4] = {};
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (int stream = 0; stream < kProbeStreams; ++stream) {
      const uint8_t* at = data + (stream * num_chunks + chunk) * kProbeChunkBytes;
      for (int offset = 0; offset < kProbeChunkBytes; offset += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + offset + kProbePrefetchBytes), _MM_HINT_T0);
        const __m256i* line = reinterpret_cast<const __m256i*>(at + offset);
        __m256i& total = sum[offset / 64];
        total = _mm256_add_epi64(total, _mm256_add_epi64(_mm256_load_si256(line), _mm256_load_si256(line + 1)));
      }
    }
  }
  const __m256i total = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  *sink = static_cast<uint64_t>(_mm256_extract_epi64(total, 0) + _mm256_extract_epi64(total, 3));
  return num_chunks * kProbeStreams * kProbeChunkBytes;
}

int64_t int8_macs(int64_t num_rounds, uint64_t* sink) {
  const __m256i ones = _mm256_set1_epi16(1), codes = _mm256_set1_epi8(7);
  __m256i a = _mm256_set1_epi8(3), sum[kChains] = {};
  for (__m256i& total : sum) asm volatile("" : "+x"(total));  // equal chains would be merged into one
  for (int64_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 16
    for (__m256i& total : sum) {
      asm volatile("" : "+x"(a));  // else one product would serve all chains
      total = _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, a), ones));
    }
  }
  *sink = 0;
  for (__m256i total : sum) *sink += static_cast<uint64_t>(_mm256_extract_epi64(total, 0));
  return num_rounds * kChains * 32;
}

int64_t fp32_macs(int64_t num_rounds, uint64_t* sink) {
  const __m256 factor = _mm256_set1_ps(0.999f), step = _mm256_set1_ps(0.001f);
  __m256 sum[kChains] = {};
  for (__m256& total : sum) asm volatile("" : "+x"(total));  // equal chains would be merged into one
  for (int64_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 16
    for (__m256& total : sum) total = _mm256_fmadd_ps(total, factor, step);
  *sink = 0;
  for (__m256 total : sum) *sink += static_cast<uint64_t>(_mm256_movemask_ps(total));
  return num_rounds * kChains * 8;
}

}  // namespace

const ProbeKernels& probe_kernels() {
  static constexpr ProbeKernels kKernels{&read, &int8_macs, &fp32_macs};
  return kKernels;
}

}  // namespace roofline::avx2
