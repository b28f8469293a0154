#include "executor/step.h"

#include <stdexcept>
#include <string>

namespace roofline {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

// A field and the entry of it that is at fault; text is made only when something is.
struct Field {
  const char* name;
  int64_t index = -1;
  std::string text() const {
    std::string result = name;
    if (index >= 0) result.append("[").append(std::to_string(index)).append("]");
    return result;
  }
};

void check_range(Field field, const int32_t* values, int64_t size, int64_t limit) {
  for (int64_t i = 0; i < size; ++i) {
    if (values[i] < 0 || values[i] >= limit) {
      refuse(field.text() + "[" + std::to_string(i) + "] is " + std::to_string(values[i]) + ", not in [0, " + std::to_string(limit) + ")");
    }
  }
}

void check_count(const char* what, Field field, int64_t count, int64_t limit) {
  if (count > limit) {
    refuse(what + field.text() + " is " + std::to_string(count) + ", more than the limit of " + std::to_string(limit));
  }
}

void check_sequence(const StepInput& in, int64_t seq, const StepLimits& limits) {
  const int64_t begin = in.seq_starts[seq], end = in.seq_starts[seq + 1], context_len = in.context_lens[seq];
  const Field lens{"context_lens", seq}, table{"block_tables", seq};
  if (begin >= end || end > in.num_tokens) refuse(Field{"seq_starts", seq + 1}.text() + " must be above the entry before and at most T");
  check_count("", lens, context_len, limits.max_context);
  if (context_len < end - begin) refuse(lens.text() + " is less than the number of tokens that the sequence brings");
  for (int64_t row = begin; row < end; ++row) {
    if (in.positions[row] != context_len - (end - row)) {
      refuse(Field{"positions", row}.text() + " is " + std::to_string(in.positions[row]) + ": positions run up to " + lens.text() + " - 1");
    }
  }
  const int64_t num_blocks = (context_len + kBlockLen - 1) / kBlockLen;
  check_count("the number of blocks of ", table, num_blocks, in.blocks_per_table);
  check_range(table, in.block_table(seq), num_blocks, limits.num_blocks);
}

}  // namespace

void check_step(const StepInput& in, const StepLimits& limits) {
  if (in.num_tokens < 1) refuse("token_ids is empty: a step has at least one token");
  check_count("T, the length of ", {"token_ids"}, in.num_tokens, limits.max_tokens);
  check_count("L, the length of ", {"logit_rows"}, in.num_logit_rows, limits.max_tokens);
  check_range({"token_ids"}, in.token_ids, in.num_tokens, limits.vocab_size);
  check_range({"logit_rows"}, in.logit_rows, in.num_logit_rows, in.num_tokens);
  if (in.num_seqs < 1 || in.seq_starts[0] != 0 || in.seq_starts[in.num_seqs] != in.num_tokens) {
    refuse("seq_starts must run from 0 to T=" + std::to_string(in.num_tokens));
  }
  for (int64_t seq = 0; seq < in.num_seqs; ++seq) check_sequence(in, seq, limits);
}

}  // namespace roofline
