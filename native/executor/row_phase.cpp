#include "executor/row_phase.h"

#include <algorithm>
#include <cstring>

#include "runtime/thread_pool.h"

namespace roofline {

// Four chunks a thread, or a row each when rows are few.
void RowPhase::prepare(const Step& step) {
  const int num_threads = static_cast<int>(homes_.size()) - 1;
  const int64_t num_chunks = std::min<int64_t>(num_rows(step), 4 * num_threads);
  for (int t = 0; t < num_threads; ++t) homes_[t + 1] = static_cast<int32_t>(share(num_chunks, t, num_threads).end);
}

void RowPhase::run_chunk(const Step& step, const Lane&, int64_t chunk) {
  const Range rows = share(num_rows(step), static_cast<int>(chunk), homes_.back());
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (const auto& op : ops_) op->run(step, row);
  }
}

void EmbedOp::run(const Step& step, int64_t row) const {
  const uint8_t* bytes = source.rows + step.input.token_ids[row] * source.row_bytes;
  dequantize_row(source.scheme.c_str(), bytes, source.row_len, out.row(row));
  if (scale != 1.0f) kernels.scale(out.row(row), scale, source.row_len, out.row(row));
}

void GatherOp::run(const Step& step, int64_t row) const {
  std::memcpy(out.row(row), x.row(step.input.logit_rows[row]), static_cast<size_t>(x.width) * sizeof(float));
}

void NormOp::run(const Step&, int64_t row) const {
  kernels.rms_norm(x.row(row), weight, eps, num_groups, group_len, out.row(row));
}

void QuantizeOp::run(const Step&, int64_t row) const {
  const QuantBuffer::Target to = out.target(row, 0);
  kernels.quantize(x.row(row), x.width, to.q, to.scale, to.sum16);
}

void RopeOp::run(const Step& step, int64_t row) const {
  const int64_t at = step.input.positions[row] * table.half_len;
  kernels.rope(x.row(row), num_heads, head_size, 2 * table.half_len, &table.cos[at], &table.sin[at], table.style);
}

void AppendOp::run(const Step& step, int64_t row) const {
  const int32_t* block_table = step.input.block_table(step.row_seqs[row]);
  kernels.append(cache, block_table, step.input.positions[row], k.row(row), v.row(row));
}

void AddOp::run(const Step&, int64_t row) const { kernels.add(a.row(row), b.row(row), out.width, out.row(row)); }

void GatedActOp::run(const Step&, int64_t row) const {
  kernels.gated_act(gate.row(row), up.row(row), act, out.width, out.row(row));
}

void SigmoidGateOp::run(const Step&, int64_t row) const {
  kernels.scale(x.row(row), kernels.sigmoid(gate.row(row)[0]), out.width, out.row(row));
}

}  // namespace roofline
