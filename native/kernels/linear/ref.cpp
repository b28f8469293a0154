// Tier `ref`: the numeric contract in scalar code, one row of weights at a time. Runs anywhere and is the oracle of the other tiers.
#include <cmath>

#include "kernels/linear/tile_read.h"

namespace roofline::ref {
namespace {

// One row of weights decoded into the thread's scratch; 1.5 bytes an element.
struct RowBuffer {
  int8_t* code;   // [K]
  float* scale;   // [K/16]
  float* min;     // [K/16]
};

RowBuffer decode_row(const PackedWeight& weight, int64_t row, uint8_t* scratch) {
  const int64_t num_halves = weight.row_len / 16;
  RowBuffer buffer{reinterpret_cast<int8_t*>(scratch + 8 * num_halves), reinterpret_cast<float*>(scratch),
                   reinterpret_cast<float*>(scratch) + num_halves};
  for (int64_t g = 0; g < weight.row_len / kGroupLen; ++g) {
    const RowGroup group = read_group(weight, row, g);
    for (int k = 0; k < kGroupLen; ++k) buffer.code[g * kGroupLen + k] = group.code[k];
    for (int half = 0; half < 2; ++half) {
      buffer.scale[2 * g + half] = group.scale[half];
      buffer.min[2 * g + half] = group.min[half];
    }
  }
  return buffer;
}

float dot_quantized(const PackedWeight& weight, const RowBuffer& row, const QuantizedRows& x, int64_t token) {
  const int len = scale_len(weight.format);
  const int8_t* q = x.q + token * x.q_stride;
  const int32_t* sum16 = x.sum16 + token * x.sum_stride;
  float acc = 0.0f, low = 0.0f;
  for (int64_t k = 0; k < weight.row_len; k += len) {
    int32_t dot = 0;
    for (int i = 0; i < len; ++i) dot += int32_t(row.code[k + i]) * q[k + i];
    const float d = x.scale[token * x.scale_stride + k / kGroupLen];
    acc = std::fmaf(float(dot), row.scale[k / 16] * d, acc);
    if (!has_min(weight.format)) continue;
    const int32_t sum = len == 16 ? sum16[k / 16] : sum16[k / 16] + sum16[k / 16 + 1];
    low = std::fmaf(row.min[k / 16], d * float(sum), low);
  }
  return has_min(weight.format) ? acc + low : acc;
}

// An odd K counts one more pair element, zero times zero, as the padded tiles do.
float dot_float(const PackedWeight& weight, int64_t row, const float* x) {
  float acc[2] = {0.0f, 0.0f};
  for (int64_t k = 0; k < weight.row_len; ++k) acc[k % 2] = std::fmaf(read_float(weight, row, k), x[k], acc[k % 2]);
  if (weight.row_len % 2 != 0) acc[1] = std::fmaf(0.0f, 0.0f, acc[1]);
  return acc[0] + acc[1];
}

void finish(const LinearArgs& args, int64_t m, int64_t row, float acc) {
  float* y = args.y + m * args.y_stride + row;
  const float value = args.bias ? acc + args.bias[row] : acc;
  *y = args.accumulate ? *y + value : value;
}

void linear_row(const LinearArgs& args, int64_t row) {
  const PackedWeight& weight = *args.weight;
  const bool quantized = !is_float(weight.format);
  const RowBuffer buffer = quantized ? decode_row(weight, row, args.scratch) : RowBuffer{};
  for (int64_t m = 0; m < args.num_tokens; ++m) {
    const int64_t token = args.row_ids ? args.row_ids[m] : m;
    const float acc = quantized ? dot_quantized(weight, buffer, args.quantized, token)
                                : dot_float(weight, row, args.floats.x + token * args.floats.stride);
    finish(args, m, row, acc);
  }
}

void linear(const LinearArgs& args) {
  const int64_t end = args.block_end * kRowBlock;
  const int64_t row_end = end < args.weight->num_rows ? end : args.weight->num_rows;
  for (int64_t row = args.block_begin * kRowBlock; row < row_end; ++row) linear_row(args, row);
}

const char* describe(Format, int64_t) { return "ref scalar"; }

}  // namespace

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{linear, describe};
  return kernels;
}

}  // namespace roofline::ref
