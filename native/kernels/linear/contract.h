// Contract of the linear family: y[M, N] = x[M, K] . W[N, K]^T over packed weights, one call = one thread's range of row blocks.
// All tiers implement exactly the arithmetic of roofline/numeric.h and read the same packed bytes (docs/kernels/linear.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "roofline/isa.h"
#include "roofline/numeric.h"

namespace roofline {

// Packed weight formats. A tile covers kRowBlock rows; row r is 32-bit lane r, and a lane holds four consecutive k.
enum class Format : int {
  f32, f16, bf16,          // [k/2][16 rows][2], K padded to even with zeros
  q4_0, q4_1,              // 16 x 32: nibbles, 16 f16 scales (+ 16 f16 minima)
  q5_0, q5_1,              // + one bit plane
  q8_0,                    // 16 x 32: u8 = code + 128, 16 f16 scales
  q2_k, q4_k, q5_k, q6_k,  // 16 x 256 super-tiles; q3_k packs to q6_k exactly
  q4_lut,                  // 16 x 32: nibbles through a 16-entry int8 table, 16 f32 scales (IQ4_NL, IQ4_XS, MXFP4)
};

struct PackedWeight {
  Format format;
  int64_t num_rows;                 // N; the last row block is padded with zero codes and scales
  int64_t row_len;                  // K
  const uint8_t* tiles;             // 64-byte aligned, row-block major: all of a block's K is contiguous
  int64_t block_stride_bytes;       // from one row block to the next
  const int8_t* lut;                // 16 entries, q4_lut only
};

// Rows of activations, quantized once by whoever produced them.
//   q[m, k] = round_to_even(x / d), d = max|x| / 127 over 32 k (d = 0 and q = 0 for an all-zero group; 1/d is computed as 127/max)
struct QuantizedRows {
  const int8_t* q;        // [rows, q_stride], 64-byte aligned, zero past K up to a multiple of 64
  const float* scale;     // [rows, K/32]
  const int32_t* sum16;   // [rows, K/16]: sums of q over 16 k
  int64_t q_stride, scale_stride, sum_stride;
};

struct FloatRows {
  const float* x;         // [rows, stride]
  int64_t stride;
};

struct LinearArgs {
  const PackedWeight* weight;
  QuantizedRows quantized;     // read by quantized formats
  FloatRows floats;            // read by f32, f16, bf16
  const int32_t* row_ids;      // M activation row numbers, or null for 0..M-1 (experts gather their tokens with it)
  int64_t num_tokens;          // M >= 1
  float* y;                    // [M, y_stride] by position in row_ids; columns of this call's row blocks are written, none past N
  int64_t y_stride;
  const float* bias;           // [N] or null:          y = acc + bias
  bool accumulate;             // residual:             y = y_old + (acc + bias)
  int64_t block_begin, block_end;
  uint8_t* scratch;            // linear_scratch_bytes(), 64-byte aligned, this thread's own
};

inline constexpr int64_t kLinearScratchBytes = 256 * 1024;
inline constexpr int64_t kMaxRowLen = 128 * 1024;  // K: what every tier's use of the scratch allows; pack_row_blocks refuses more

using LinearFn = void (*)(const LinearArgs&);

struct LinearKernels {
  LinearFn linear;             // every format and every M >= 1
  const char* (*describe)(Format, int64_t num_tokens);  // the inner kernel that would serve, e.g. "avx512 gemv q5_0 8 streams"
};

// plain_pack.cpp: file bytes to tiles. `scheme` is the GGUF type name ("Q4_K"); rows is the whole tensor.
Format packed_format(const char* scheme);                                  // throws std::invalid_argument naming the scheme
const int8_t* packed_lut(const char* scheme);                              // PackedWeight::lut, null for all but q4_lut
int64_t scheme_row_bytes(const char* scheme, int64_t row_len);             // file bytes of one row; throws when row_len does not divide
int64_t packed_block_bytes(Format format, int64_t row_len);                // bytes of one row block
void pack_row_blocks(const char* scheme, const uint8_t* rows, int64_t num_rows, int64_t row_len, int64_t block_begin,
                     int64_t block_end, uint8_t* tiles);
void unpack_row(const PackedWeight& weight, int64_t row, float* out);      // tests, and the proof that packing loses nothing
// One row of file bytes to float32, equal to the scheme's definition; serves embedding look-ups from the mapped file.
void dequantize_row(const char* scheme, const uint8_t* row, int64_t row_len, float* out);

// plain_select.cpp: the highest tier up to `cap` that was built, and which one it is. The caller has checked the machine runs `cap`.
const LinearKernels& linear_kernels(Isa cap, Isa* chosen);

namespace ref { const LinearKernels& linear_kernels(); }
namespace avx2 { const LinearKernels& linear_kernels(); }
namespace avx512 { const LinearKernels& linear_kernels(); }
namespace amx { const LinearKernels& linear_kernels(); }

}  // namespace roofline
