// One step's input as the phases see it, and what each thread brings. The shapes are those of roofline.core.batch.StepBatch.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dispatch.h"

namespace roofline {

struct StepInput {
  int64_t num_tokens = 0;         // T
  int64_t num_seqs = 0;           // B
  int64_t num_logit_rows = 0;     // L
  int64_t blocks_per_table = 0;   // columns of block_tables
  const int32_t* token_ids = nullptr;      // [T]
  const int32_t* positions = nullptr;      // [T]
  const int32_t* seq_starts = nullptr;     // [B + 1]
  const int32_t* context_lens = nullptr;   // [B]
  const int32_t* block_tables = nullptr;   // [B, blocks_per_table]
  const int32_t* logit_rows = nullptr;     // [L]
  float* logits = nullptr;                 // [L, V], the caller's

  const int32_t* block_table(int64_t seq) const { return block_tables + seq * blocks_per_table; }
};

struct StepLimits {
  int64_t max_tokens;      // rows in a step, and logit rows
  int64_t max_context;     // tokens of a sequence
  int64_t num_blocks;      // of the KV cache
  int64_t vocab_size;
};

// Throws std::invalid_argument naming the field and the limit. A batch that passes can't make any phase read or write out of bounds.
void check_step(const StepInput& input, const StepLimits& limits);

struct Step {
  StepInput input;
  std::vector<int32_t> row_seqs;   // sequence of each row [T]
};

// A thread's place in the pool and its private memory.
struct Lane {
  int index;
  uint8_t* linear;       // kLinearScratchBytes
  float* attention;      // attention_scratch_bytes()
  float* columns;        // kColumnScratchLen floats: gate and up columns on their way to the activation
};

}  // namespace roofline
