// The attention family for Python, on memory that the caller owns: the tests' and the micro-benchmark's way to every tier.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/module.h"
#include "kernels/attention/contract.h"

namespace nb = nanobind;

namespace roofline::bind {
namespace {

using Memory = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Queries = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Outputs = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Partials = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using BlockTable = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const AttentionKernels& kernels_of(const std::string& isa) {
  Isa chosen;
  return attention_kernels(usable_isa(isa), &chosen);
}

void require(bool good, const char* message) {
  if (!good) throw std::invalid_argument(message);
}

KvType kv_type_named(const std::string& name) {
  if (name == "f32") return KvType::f32;
  if (name == "f16") return KvType::f16;
  if (name == "bf16") return KvType::bf16;
  throw std::invalid_argument("unknown KV type: " + name + " (known: f32, f16, bf16)");
}

struct Cache {
  Memory memory;
  KvCache view;

  Cache(Memory blocks, const std::string& kv_type, int64_t num_kv_heads, int64_t head_size) : memory(blocks) {
    view = {blocks.data(), static_cast<int64_t>(blocks.shape(1)), kv_type_named(kv_type), num_kv_heads, head_size};
    require(num_kv_heads > 0 && head_size > 0, "num_kv_heads and head_size are positive");
    const int64_t needed = num_kv_heads * kv_head_bytes(view.type, head_size);
    require(view.block_stride_bytes >= needed, "a block holds fewer bytes than its heads");
  }

  void check(const BlockTable& table, int64_t num_tokens) const {
    require(num_tokens > 0 && static_cast<int64_t>(table.shape(0)) * kBlockLen >= num_tokens, "block_table is too short");
    for (size_t i = 0; i < table.shape(0); i++) {
      require(table.data()[i] >= 0 && static_cast<size_t>(table.data()[i]) < memory.shape(0), "block number out of range");
    }
  }

  void append(const std::string& isa, BlockTable table, int64_t position, Row k, Row v) const {
    check(table, position + 1);
    const auto row_len = static_cast<size_t>(view.num_kv_heads * view.head_size);
    require(position >= 0 && k.shape(0) == row_len && v.shape(0) == row_len, "k and v take num_kv_heads * head_size values");
    kernels_of(isa).append(view, table.data(), position, k.data(), v.data());
  }
};

struct Step {
  const Cache& cache;
  Queries q;
  Outputs out;
  AttentionArgs args;

  Step(const Cache& kv, Queries queries, Outputs outputs, int64_t num_heads, float scale, float soft_cap, int64_t window)
      : cache(kv), q(queries), out(outputs) {
    const auto row_len = static_cast<size_t>(num_heads * kv.view.head_size);
    require(num_heads > 0 && num_heads % kv.view.num_kv_heads == 0, "num_heads is a multiple of num_kv_heads");
    require(q.shape(1) == row_len && out.shape(1) == row_len && q.shape(0) == out.shape(0), "q and out are [T, H * D]");
    args = {kv.view, num_heads, scale, soft_cap, window, q.data(), int64_t(row_len), out.data(), int64_t(row_len)};
  }

  AttentionTile tile_at(const BlockTable& table, int64_t kv_head, int64_t first_row, int64_t first_position, int64_t num_tokens,
                        int64_t chunk_begin, int64_t chunk_end, const std::optional<Partials>& partials) const {
    cache.check(table, first_position + num_tokens);
    require(kv_head >= 0 && kv_head < cache.view.num_kv_heads, "kv_head out of range");
    require(first_row >= 0 && num_tokens > 0 && first_row + num_tokens <= int64_t(q.shape(0)), "rows out of range");
    const int64_t num_chunks = (first_position + num_tokens + kChunkLen - 1) / kChunkLen;
    require(first_position >= 0 && chunk_begin >= 0 && chunk_begin <= chunk_end && chunk_end <= num_chunks,
            "position or chunks out of range");
    const int64_t floats = attention_partial_floats(num_tokens * args.num_heads / cache.view.num_kv_heads, cache.view.head_size);
    require(!partials || int64_t(partials->shape(0)) >= floats * (chunk_end - chunk_begin), "partials are too short");
    return {table.data(), kv_head,     first_row, first_position, num_tokens, chunk_begin,
            chunk_end,    partials ? partials->data() : nullptr};
  }

  void tile(const std::string& isa, BlockTable table, int64_t kv_head, int64_t first_row, int64_t first_position,
            int64_t num_tokens, int64_t chunk_begin, int64_t chunk_end, std::optional<Partials> partials) const {
    const AttentionTile where =
        tile_at(table, kv_head, first_row, first_position, num_tokens, chunk_begin, chunk_end, partials);
    const int64_t num_rows = num_tokens * args.num_heads / cache.view.num_kv_heads;
    std::vector<float> scratch(size_t(attention_scratch_bytes(num_rows, cache.view.head_size)) / sizeof(float));
    kernels_of(isa).tile(args, where, scratch.data());
  }

  void merge(const std::string& isa, BlockTable table, int64_t kv_head, int64_t first_row, int64_t first_position,
             int64_t num_tokens, int64_t num_chunks, Partials partials) const {
    kernels_of(isa).merge(args, tile_at(table, kv_head, first_row, first_position, num_tokens, 0, num_chunks, partials),
                          num_chunks);
  }
};

// ---- micro-benchmark --------------------------------------------------------------------------------------------------------

// One sequence whose last num_tokens of `context` are queries, over a cache of its own.
struct Bench {
  int64_t heads_per_kv, num_tokens, context;
  std::vector<uint8_t> memory;
  std::vector<int32_t> table;
  std::vector<float> q, out, scratch;
  AttentionArgs args;

  Bench(const AttentionKernels& kernels, KvType type, int64_t num_kv_heads, int64_t ratio, int64_t head_size, int64_t tokens,
        int64_t context_len)
      : heads_per_kv(ratio), num_tokens(tokens), context(context_len) {
    const int64_t stride = num_kv_heads * kv_head_bytes(type, head_size), num_heads = num_kv_heads * ratio;
    table.resize(size_t((context + kBlockLen - 1) / kBlockLen));
    for (size_t b = 0; b < table.size(); b++) table[b] = int32_t(b);
    memory.resize(table.size() * size_t(stride) + 64);
    uint8_t* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    q.resize(size_t(num_tokens * num_heads * head_size));
    out.resize(q.size());
    scratch.resize(size_t(attention_scratch_bytes(std::max(kAttentionTileRows, ratio), head_size)) / sizeof(float));
    for (size_t i = 0; i < q.size(); i++) q[i] = float(int(i * 2654435761u % 2001) - 1000) * 1e-3f;
    args = {{base, stride, type, num_kv_heads, head_size}, num_heads, 0.125f, 0.0f, 0, q.data(), num_heads * head_size,
            out.data(), num_heads * head_size};
    std::vector<float> row(size_t(num_kv_heads * head_size));
    for (int64_t t = 0; t < context; t++) {
      for (size_t i = 0; i < row.size(); i++) row[i] = float(int((size_t(t) * 977 + i) * 2654435761u % 2001) - 1000) * 1e-3f;
      kernels.append(args.cache, table.data(), t, row.data(), row.data());
    }
  }

  void pass(const AttentionKernels& kernels) {
    const int64_t step = std::max<int64_t>(1, kAttentionTileRows / heads_per_kv);
    for (int64_t h = 0; h < args.cache.num_kv_heads; h++) {
      for (int64_t t = 0; t < num_tokens; t += step) {
        const int64_t count = std::min(step, num_tokens - t), first = context - num_tokens + t;
        const int64_t num_chunks = (first + count + kChunkLen - 1) / kChunkLen;
        kernels.tile(args, {table.data(), h, t, first, count, 0, num_chunks, nullptr}, scratch.data());
      }
    }
  }
};

double bench(const std::string& isa, const std::string& kv_type, int64_t num_kv_heads, int64_t heads_per_kv, int64_t head_size,
             int64_t num_tokens, int64_t context, int64_t repeats) {
  require(num_kv_heads > 0 && heads_per_kv > 0 && head_size > 0 && repeats > 0, "sizes are positive");
  require(num_tokens > 0 && num_tokens <= context, "the queries are the last tokens of the context");
  const AttentionKernels& kernels = kernels_of(isa);
  const KvType type = kv_type_named(kv_type);
  nb::gil_scoped_release release;
  Bench run(kernels, type, num_kv_heads, heads_per_kv, head_size, num_tokens, context);
  double best = 1e30;
  for (int64_t i = 0; i < repeats; i++) {
    const double start = thread_time_s();
    run.pass(kernels);
    best = std::min(best, thread_time_s() - start);
  }
  return best;
}

// A chain of dependent multiply-and-xor steps: 3 + 1 cycles each on every x86-64 core with a 3-cycle multiplier.
double clock_hz() {
  constexpr int64_t kSteps = 2'000'000;
  double best = 1e30;
  for (int repeat = 0; repeat < 5; repeat++) {
    uint64_t x = 1;
    const double start = thread_time_s();
    for (int64_t i = 0; i < kSteps; i++) {
      x = (x * 0x9E3779B97F4A7C15u) ^ 0x55;
      __asm__ volatile("" : "+r"(x));
    }
    best = std::min(best, thread_time_s() - start);
  }
  return 4.0 * kSteps / best;
}

void define_step(nb::module_& m) {
  nb::class_<Step>(m, "Step", "Attention of a step's query rows: q and out are float32 [T, H * D].")
      .def(nb::init<const Cache&, Queries, Outputs, int64_t, float, float, int64_t>(), nb::arg("cache"), nb::arg("q"),
           nb::arg("out"), nb::kw_only(), nb::arg("num_heads"), nb::arg("scale"), nb::arg("soft_cap") = 0.0f,
           nb::arg("window") = 0, nb::keep_alive<1, 2>())
      .def("tile", &Step::tile, nb::arg("isa"), nb::kw_only(), nb::arg("block_table"), nb::arg("kv_head"), nb::arg("first_row"),
           nb::arg("first_position"), nb::arg("num_tokens"), nb::arg("chunk_begin"), nb::arg("chunk_end"),
           nb::arg("partials") = nb::none())
      .def("merge", &Step::merge, nb::arg("isa"), nb::kw_only(), nb::arg("block_table"), nb::arg("kv_head"),
           nb::arg("first_row"), nb::arg("first_position"), nb::arg("num_tokens"), nb::arg("num_chunks"), nb::arg("partials"));
}

}  // namespace

void register_attention(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("attention", "Paged attention on every tier; see kernels/attention/contract.h.");
  nb::class_<Cache>(m, "Cache", "One layer's KV blocks: uint8 [num_blocks, block_bytes], zeroed by the caller.")
      .def(nb::init<Memory, const std::string&, int64_t, int64_t>(), nb::arg("memory"), nb::arg("kv_type"),
           nb::arg("num_kv_heads"), nb::arg("head_size"))
      .def("append", &Cache::append, nb::arg("isa"), nb::arg("block_table"), nb::arg("position"), nb::arg("k"), nb::arg("v"));
  define_step(m);
  m.def("head_bytes", [](const std::string& type, int64_t head_size) { return kv_head_bytes(kv_type_named(type), head_size); },
        nb::arg("kv_type"), nb::arg("head_size"), "Bytes of one KV head in one block.");
  m.attr("TILE_ROWS") = kAttentionTileRows;
  m.def("partial_floats", &attention_partial_floats, nb::arg("rows"), nb::arg("head_size"));
  m.def("bench", &bench, nb::arg("isa"), nb::kw_only(), nb::arg("kv_type"), nb::arg("num_kv_heads"), nb::arg("heads_per_kv"),
        nb::arg("head_size"), nb::arg("num_tokens"), nb::arg("context"), nb::arg("repeats"),
        "Best seconds of the last num_tokens queries of a sequence of `context` tokens, one thread.");
  m.def("clock_hz", &clock_hz, "The core's clock now, from a chain of dependent instructions.");
}

}  // namespace roofline::bind
