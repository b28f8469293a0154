// The executor for Python: declarations for the lowering, and `step`, which checks every array before the native side reads it and
// runs without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind/module.h"
#include "executor/executor.h"
#include "runtime/cpu_features.h"

namespace nb = nanobind;

namespace roofline::bind {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Floats1d = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats2d = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;
using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Pair = std::tuple<int, int>;                       // InputSpec: float buffer, quantized buffer

template <class T>
T named(const std::map<std::string, T>& values, const char* what, const std::string& name) {
  const auto found = values.find(name);
  if (found != values.end()) return found->second;
  std::string known;
  for (const auto& entry : values) known += (known.empty() ? "" : ", ") + entry.first;
  throw std::invalid_argument(std::string(what) + " " + name + " is unknown (known: " + known + ")");
}

Activation activation(const std::string& name) {
  return named<Activation>({{"silu", Activation::silu}, {"gelu_tanh", Activation::gelu_tanh}}, "activation", name);
}

Isa runnable_isa(const std::string& name) {
  Isa isa;
  if (!parse_isa(name, &isa)) throw std::invalid_argument("isa " + name + " is unknown (known: ref, avx2, avx512, amx)");
  if (!isa_gaps(isa).empty()) throw std::invalid_argument("isa " + name + " does not run on this machine");
  return isa;
}

InputSpec pair(const Pair& ids) { return {std::get<0>(ids), std::get<1>(ids)}; }

int add_embedding(Executor& self, const std::string& scheme, const Bytes& rows, int64_t num_rows, int64_t row_len) {
  const int64_t row_bytes = scheme_row_bytes(scheme.c_str(), row_len);
  if (static_cast<int64_t>(rows.size()) / row_bytes != num_rows || rows.size() % static_cast<size_t>(row_bytes) != 0) {
    throw std::invalid_argument("the embedding has " + std::to_string(rows.size()) + " bytes, not " + std::to_string(num_rows * row_bytes));
  }
  return self.add_embedding(scheme, rows.data(), num_rows, row_len);
}

std::vector<std::tuple<int64_t, int64_t>> pack(Executor& self, int id, const Bytes& rows, int part, int num_parts) {
  const Weight& weight = self.weight(id);
  const int64_t bytes = weight.packed.num_rows * scheme_row_bytes(weight.scheme.c_str(), weight.packed.row_len);
  if (static_cast<int64_t>(rows.size()) != bytes) {
    throw std::invalid_argument("weight " + std::to_string(id) + " has " + std::to_string(rows.size()) + " bytes, not " + std::to_string(bytes));
  }
  std::vector<std::tuple<int64_t, int64_t>> done;
  const nb::gil_scoped_release release;
  for (const BlockRange& blocks : self.pack(id, rows.data(), part, num_parts)) {
    done.emplace_back(blocks.begin * kRowBlock, std::min(blocks.end * kRowBlock, weight.packed.num_rows));
  }
  return done;
}

int add_rope(Executor& self, const Floats2d& cos, const Floats2d& sin, const std::string& style) {
  if (cos.shape(0) != sin.shape(0) || cos.shape(1) != sin.shape(1)) throw std::invalid_argument("cos and sin have different shapes");
  const RopeStyle rope_style =
      named<RopeStyle>({{"half", RopeStyle::half}, {"interleaved", RopeStyle::interleaved}}, "rope style", style);
  return self.add_rope(cos.data(), sin.data(), static_cast<int64_t>(cos.shape(0)), static_cast<int64_t>(cos.shape(1)), rope_style);
}

void add_linears(Executor& self, const std::string& name, const Pair& input, const std::vector<std::tuple<int, int, int, bool>>& items) {
  std::vector<LinearSpec> specs;
  for (const auto& [weight, bias, out, accumulate] : items) specs.push_back({weight, bias, out, accumulate});
  self.add_linears(name, pair(input), specs);
}

const int32_t* ints(const AnyArray& array, const char* name, size_t ndim) {
  if (array.dtype() != nb::dtype<int32_t>() || array.ndim() != ndim) {
    throw std::invalid_argument(std::string(name) + " must be an int32 array of " + std::to_string(ndim) + " dimension(s)");
  }
  int64_t expected = 1;
  for (size_t axis = ndim; axis-- > 0;) {
    if (array.shape(axis) > 1 && array.stride(axis) != expected) throw std::invalid_argument(std::string(name) + " must be C-contiguous");
    expected *= static_cast<int64_t>(array.shape(axis));
  }
  return static_cast<const int32_t*>(array.data());
}

void require_len(const char* name, size_t len, size_t wanted, const char* why) {
  if (len == wanted) return;
  throw std::invalid_argument(std::string(name) + " has length " + std::to_string(len) + ", not " + std::to_string(wanted) + " (" + why + ")");
}

void step(Executor& self, const AnyArray& token_ids, const AnyArray& positions, const AnyArray& seq_starts,
          const AnyArray& context_lens, const AnyArray& block_tables, const AnyArray& logit_rows, const Logits& logits) {
  StepInput input;
  input.token_ids = ints(token_ids, "token_ids", 1);
  input.positions = ints(positions, "positions", 1);
  input.seq_starts = ints(seq_starts, "seq_starts", 1);
  input.context_lens = ints(context_lens, "context_lens", 1);
  input.block_tables = ints(block_tables, "block_tables", 2);
  input.logit_rows = ints(logit_rows, "logit_rows", 1);
  require_len("positions", positions.shape(0), token_ids.shape(0), "T");
  require_len("seq_starts", seq_starts.shape(0), context_lens.shape(0) + 1, "B + 1");
  require_len("block_tables", block_tables.shape(0), context_lens.shape(0), "B");
  require_len("logits", logits.shape(0), logit_rows.shape(0), "L");
  require_len("a row of logits", logits.shape(1), static_cast<size_t>(self.limits().vocab_size), "V");
  input.num_tokens = static_cast<int64_t>(token_ids.shape(0));
  input.num_seqs = static_cast<int64_t>(context_lens.shape(0));
  input.blocks_per_table = static_cast<int64_t>(block_tables.shape(1));
  input.num_logit_rows = static_cast<int64_t>(logit_rows.shape(0));
  input.logits = logits.data();
  const nb::gil_scoped_release release;
  self.step(input);
}

nb::dict memory(const Executor& self) {
  const MemoryUse use = self.memory();
  nb::dict result;
  result["weights_bytes"] = use.weights_bytes;
  result["kv_bytes"] = use.kv_bytes;
  result["scratch_bytes"] = use.scratch_bytes;
  return result;
}

nb::dict kernel_tiers(const Executor& self) {
  nb::dict result;
  result["linear"] = isa_name(self.kernels().linear_isa);
  result["pointwise"] = isa_name(self.kernels().pointwise_isa);
  result["attention"] = isa_name(self.kernels().attention_isa);
  return result;
}

std::vector<std::tuple<std::string, double, int>> trace(const Executor& self) {
  std::vector<std::tuple<std::string, double, int>> times;
  for (const PhaseTime& phase : self.trace()) times.emplace_back(phase.name, phase.seconds, self.limits().num_threads);
  return times;
}

using ExecutorClass = nb::class_<Executor>;

void define_declarations(ExecutorClass& c) {
  c.def("add_floats", &Executor::add_floats, nb::arg("width"), nb::arg("rows_per_token") = 1);
  c.def("add_quantized", &Executor::add_quantized, nb::arg("width"), nb::arg("rows_per_token") = 1);
  c.def("add_vector", [](Executor& self, const Floats1d& values) { return self.add_vector(values.data(), static_cast<int64_t>(values.size())); },
        nb::arg("values").noconvert());
  c.def("add_weight", &Executor::add_weight, nb::arg("scheme"), nb::arg("num_rows"), nb::arg("row_len"));
  c.def("add_embedding", &add_embedding, nb::arg("scheme"), nb::arg("rows").noconvert(), nb::arg("num_rows"), nb::arg("row_len"),
        nb::keep_alive<1, 3>(), "The rows are read in every step and stay where they are: usually a view of the mapped file.");
  c.def("add_rope", &add_rope, nb::arg("cos").noconvert(), nb::arg("sin").noconvert(), nb::arg("style"));
  c.def("add_kv_layer", &Executor::add_kv_layer, nb::arg("num_kv_heads"), nb::arg("head_size"));
  c.def("add_moe", [](Executor& self, int64_t num_experts, int64_t top_k, int64_t expert_len, int64_t width) {
    return self.add_moe({num_experts, top_k, expert_len, width});
  }, nb::arg("num_experts"), nb::arg("top_k"), nb::arg("expert_len"), nb::arg("width"));
}

void define_row_operators(ExecutorClass& c) {
  c.def("begin_rows", [](Executor& self, const std::string& name, const std::string& space) {
    self.begin_rows(name, named<RowSpace>({{"tokens", RowSpace::tokens}, {"logit_rows", RowSpace::logit_rows}}, "row space", space));
  }, nb::arg("name"), nb::arg("space"));
  c.def("row_embed", &Executor::row_embed, nb::arg("embedding"), nb::arg("out"), nb::arg("scale"));
  c.def("row_gather", &Executor::row_gather, nb::arg("x"), nb::arg("out"));
  c.def("row_norm", [](Executor& self, int x, int out, int weight, float eps, int64_t num_groups, int64_t group_len) {
    self.row_norm({x, out, weight, eps, num_groups, group_len});
  }, nb::arg("x"), nb::arg("out"), nb::arg("weight"), nb::arg("eps"), nb::arg("num_groups"), nb::arg("group_len"));
  c.def("row_quantize", &Executor::row_quantize, nb::arg("x"), nb::arg("out"));
  c.def("row_rope", &Executor::row_rope, nb::arg("x"), nb::arg("rope"), nb::arg("num_heads"), nb::arg("head_size"));
  c.def("row_append", &Executor::row_append, nb::arg("layer"), nb::arg("k"), nb::arg("v"));
  c.def("row_add", &Executor::row_add, nb::arg("a"), nb::arg("b"), nb::arg("out"));
  c.def("row_gated_act", [](Executor& self, int gate, int up, int out, const std::string& act) {
    self.row_gated_act(gate, up, out, activation(act));
  }, nb::arg("gate"), nb::arg("up"), nb::arg("out"), nb::arg("act"));
  c.def("row_sigmoid_gate", &Executor::row_sigmoid_gate, nb::arg("x"), nb::arg("gate"), nb::arg("out"));
  c.def("row_route", &Executor::row_route, nb::arg("moe"), nb::arg("x"), nb::arg("router"), nb::arg("scores"), nb::arg("renormalize"));
  c.def("row_combine", &Executor::row_combine, nb::arg("moe"), nb::arg("down"), nb::arg("out"));
}

void define_phases(ExecutorClass& c) {
  c.def("add_linears", &add_linears, nb::arg("name"), nb::arg("x"), nb::arg("items"), "items: (weight, bias or -1, out, accumulate)");
  c.def("add_gated", [](Executor& self, const std::string& name, const Pair& input, int gate, int up, const std::string& act, const Pair& out) {
    self.add_gated(name, pair(input), gate, up, activation(act), pair(out));
  }, nb::arg("name"), nb::arg("x"), nb::arg("gate"), nb::arg("up"), nb::arg("act"), nb::arg("out"));
  c.def("add_attention", [](Executor& self, const std::string& name, int q, int out, int layer, int64_t num_heads, int64_t num_kv_heads,
                            int64_t head_size, int64_t window, float scale, float soft_cap) {
    self.add_attention(name, {q, out, layer, {num_heads, num_kv_heads, head_size, window}, scale, soft_cap});
  }, nb::arg("name"), nb::arg("q"), nb::arg("out"), nb::arg("layer"), nb::arg("num_heads"), nb::arg("num_kv_heads"),
     nb::arg("head_size"), nb::arg("window"), nb::arg("scale"), nb::arg("soft_cap"));
  c.def("add_expert_gated", [](Executor& self, const std::string& name, int moe, const Pair& input, const std::vector<int>& gate,
                               const std::vector<int>& up, const std::string& act, const Pair& out) {
    self.add_expert_gated(name, moe, pair(input), gate, up, activation(act), pair(out));
  }, nb::arg("name"), nb::arg("moe"), nb::arg("x"), nb::arg("gate"), nb::arg("up"), nb::arg("act"), nb::arg("out"));
  c.def("add_expert_down", [](Executor& self, const std::string& name, int moe, const Pair& input, const std::vector<int>& down, int out) {
    self.add_expert_down(name, moe, pair(input), down, out);
  }, nb::arg("name"), nb::arg("moe"), nb::arg("x"), nb::arg("down"), nb::arg("out"));
  c.def("add_logits", [](Executor& self, const std::string& name, const Pair& input, int weight, float scale, float soft_cap) {
    self.add_logits(name, pair(input), weight, scale, soft_cap);
  }, nb::arg("name"), nb::arg("x"), nb::arg("weight"), nb::arg("scale"), nb::arg("soft_cap"));
}

void define_running(ExecutorClass& c) {
  c.def("memory", &memory, "weights_bytes, kv_bytes and scratch_bytes that commit takes; known before it.");
  c.def("commit", &Executor::commit, nb::call_guard<nb::gil_scoped_release>());
  c.def("pack", &pack, nb::arg("weight"), nb::arg("rows").noconvert(), nb::arg("part") = 0, nb::arg("num_parts") = 1,
        "File bytes of a part of the weight into its tiles, in parallel; `rows` is the whole weight. Returns the row ranges done.");
  c.def("step", &step, nb::arg("token_ids"), nb::arg("positions"), nb::arg("seq_starts"), nb::arg("context_lens"),
        nb::arg("block_tables"), nb::arg("logit_rows"), nb::arg("logits").noconvert(),
        "Run one step without the GIL, logits [L, V] into the caller's array; ValueError names the field of a batch that is refused.");
  c.def("enable_trace", &Executor::enable_trace, nb::arg("on"), "Start the phase times from zero, or stop them.");
  c.def("trace", &trace, "(phase, seconds since enable_trace, threads) in order.");
  c.def_prop_ro("num_threads", [](const Executor& self) { return self.limits().num_threads; });
  c.def_prop_ro("pool", &Executor::pool, nb::rv_policy::reference_internal, "The threads of the steps, for work between them.");
  c.def("kernel_tiers", &kernel_tiers, "Tier that serves each kernel family.");
  c.def("describe_weight", [](const Executor& self, int id, int64_t num_tokens) {
    return std::string(self.kernels().linear->describe(self.weight(id).packed.format, num_tokens));
  }, nb::arg("weight"), nb::arg("num_tokens"), "The kernel that serves a weight in a step of so many tokens.");
}

}  // namespace

void register_executor(nb::module_& m) {
  ExecutorClass c(m, "Executor", "A model lowered to phases on a pool of threads; see executor/executor.h.");
  c.def("__init__", [](Executor* self, int threads, const std::string& isa, const std::string& kv_type, int64_t max_tokens,
                       int64_t max_context, int64_t num_blocks, int64_t vocab_size, const std::vector<int>& cpus) {
    const KvType type = named<KvType>({{"f32", KvType::f32}, {"f16", KvType::f16}, {"bf16", KvType::bf16}}, "kv_type", kv_type);
    new (self) Executor({threads, runnable_isa(isa), type, max_tokens, max_context, num_blocks, vocab_size, cpus});
  }, nb::arg("threads"), nb::arg("isa"), nb::arg("kv_type"), nb::arg("max_tokens"), nb::arg("max_context"), nb::arg("num_blocks"),
     nb::arg("vocab_size"), nb::arg("cpus"));
  define_declarations(c);
  define_row_operators(c);
  define_phases(c);
  define_running(c);
}

}  // namespace roofline::bind
