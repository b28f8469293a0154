// Rows of values between phases. A buffer is declared first (its width), placed in the arena by Executor::commit, and then has an
// address for good. Row strides are whole cache lines, so that two threads' rows never share one.
#pragma once

#include <cstdint>

#include "executor/arena.h"
#include "kernels/linear/contract.h"
#include "roofline/numeric.h"

namespace roofline {

struct FloatBuffer {
  FloatBuffer(int64_t width, int64_t num_rows) : width(width), stride(round_up(width, kLanes)), num_rows(num_rows) {}
  int64_t size_bytes() const { return num_rows * stride * static_cast<int64_t>(sizeof(float)); }
  float* row(int64_t index) const { return data + index * stride; }

  int64_t width, stride, num_rows;
  float* data = nullptr;
};

// int8 activations with their scales per 32 and sums per 16 (QuantizedRows).
struct QuantBuffer {
  QuantBuffer(int64_t width, int64_t num_rows)
      : width(width), q_stride(round_up(width, 64)), scale_stride(round_up(width / kGroupLen, kLanes)),
        sum_stride(round_up(width / 16, kLanes)), num_rows(num_rows) {}
  int64_t scale_offset() const { return num_rows * q_stride; }
  int64_t sum_offset() const { return scale_offset() + num_rows * scale_stride * 4; }
  int64_t size_bytes() const { return sum_offset() + num_rows * sum_stride * 4; }
  void place(uint8_t* memory) {
    q = reinterpret_cast<int8_t*>(memory);
    scale = reinterpret_cast<float*>(memory + scale_offset());
    sum16 = reinterpret_cast<int32_t*>(memory + sum_offset());
  }
  QuantizedRows view(int64_t first_row) const {
    return {q + first_row * q_stride, scale + first_row * scale_stride, sum16 + first_row * sum_stride,
            q_stride, scale_stride, sum_stride};
  }

  // Where a producer writes columns from `column` on, a multiple of 64 (or 0).
  struct Target {
    int8_t* q;
    float* scale;
    int32_t* sum16;
  };
  Target target(int64_t row, int64_t column) const {
    return {q + row * q_stride + column, scale + row * scale_stride + column / kGroupLen, sum16 + row * sum_stride + column / 16};
  }

  int64_t width, q_stride, scale_stride, sum_stride, num_rows;
  int8_t* q = nullptr;
  float* scale = nullptr;
  int32_t* sum16 = nullptr;
};

}  // namespace roofline
