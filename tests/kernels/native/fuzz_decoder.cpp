// Any bytes as a pack, over a small model in any memory: check, resolve, scatter and apply.
//
// AddressSanitizer watches the memory, which is allocated to the byte; this program watches what the kernels
// promise: every set of instructions gives one verdict, what is refused writes nothing, and what is accepted is
// the same whether it is staged and scattered or applied, and applied once or twice.
//
// Input: a header of 8 bytes (Model), the number of rows, 8 bytes for each of them (read_rows), the body.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "apply.hpp"
#include "resolve.hpp"
#include "scatter.hpp"

namespace {
using namespace deltastore;
using Bytes = std::vector<unsigned char>;

constexpr std::size_t kHeader = 9;
constexpr std::size_t kRowInput = 8;

void require(bool holds) {
    if (!holds) std::abort();
}

// Memory of exactly this size, so that one byte beyond it is nobody's.
struct Exact {
    explicit Exact(std::size_t bytes) : size(bytes), data(new unsigned char[bytes]()) {}
    Exact(const unsigned char *from, std::size_t bytes) : Exact(bytes) {
        if (bytes > 0) std::memcpy(data.get(), from, bytes);
    }
    bool operator==(const Exact &other) const {
        return size == other.size && (size == 0 || std::memcmp(data.get(), other.data.get(), size) == 0);
    }

    std::size_t size;
    std::unique_ptr<unsigned char[]> data;
};

// Bytes 0 to 7: element (2 bits of size, 1 floating), memory (2 bits), instructions ignored; tensor extents; chunk
// extents; what the weights are; where the tensor is cut in two; how many members.
struct Model {
    explicit Model(const unsigned char *in)
        : itemsize(1u << (in[0] & 3)), layout(in[0] >> 3 & 3), cut(in[6]), twice((in[7] & 4) != 0) {
        Array array;
        array.axes = 3;
        array.itemsize = itemsize;
        array.floating = (in[0] & 4) != 0;
        const std::int64_t extent[3] = {1 + (in[7] & 3), 1 + in[1] % 40, 1 + in[2] % 60};
        const std::int64_t chunk[3] = {1 + (in[7] >> 4 & 1), 1 + in[3] % 41, 1 + in[4] % 61};
        array.chunks = 1;
        for (int axis = 0; axis < 3; ++axis) {
            array.extent[axis] = extent[axis];
            array.chunk[axis] = chunk[axis];
            array.counts[axis] = (extent[axis] + chunk[axis] - 1) / chunk[axis];
            array.chunks *= static_cast<std::uint64_t>(array.counts[axis]);
        }
        for (std::int64_t member = 0; member < extent[0]; ++member) {
            array.seeds.push_back(2 * static_cast<std::uint64_t>(member) + 1);
        }
        table.arrays.push_back(array);
        seed = in[5];
    }

    std::uint32_t itemsize;
    unsigned layout;
    unsigned cut;
    bool twice;
    std::uint64_t seed = 0;
    Table table;
};

// The model's tensors as pieces, each in memory of its own.
class Memory {
  public:
    explicit Memory(const Model &model) : model_(model), pieces(model.table) {
        const Array &array = model.table.arrays[0];
        for (std::int64_t member = 0; member < array.extent[0]; ++member) {
            const std::int64_t middle = model.cut % (array.extent[2] + 1);
            add(member, 0, middle);
            if (!(model.cut & 128)) add(member, middle, array.extent[2]);
            if (model.twice) add(member, 0, array.extent[2]);
        }
        pieces.finish();
    }

    bool operator==(const Memory &other) const { return blocks_ == other.blocks_; }

  private:
    void add(std::int64_t member, std::int64_t low, std::int64_t high) {
        const Array &array = model_.table.arrays[0];
        const std::int64_t item = model_.itemsize;
        Piece piece;
        piece.member = static_cast<std::uint32_t>(member);
        piece.axes = 2;
        piece.lo[1] = low;
        piece.size[0] = array.extent[1];
        piece.size[1] = high - low;
        const bool transposed = model_.layout == 1;
        const std::int64_t step = model_.layout == 3 ? 3 * item : item;
        piece.stride[0] = transposed ? step : step * std::max<std::int64_t>(piece.size[1], 1);
        piece.stride[1] = transposed ? step * piece.size[0] : step;
        const std::int64_t elements = piece.size[0] * piece.size[1];
        blocks_.emplace_back(static_cast<std::size_t>(elements > 0 ? (elements - 1) * step + item : 0));
        piece.address = reinterpret_cast<std::uintptr_t>(blocks_.back().data.get());
        if (model_.layout == 2 && elements > 0) {
            piece.address += static_cast<std::uintptr_t>((elements - 1) * step);
            piece.stride[0] = -piece.stride[0];
            piece.stride[1] = -piece.stride[1];
        }
        fill(piece);
        pieces.add(piece);
    }

    // Element (member, row, column) is the same in every piece; write_corpus.py knows the formula.
    void fill(const Piece &piece) {
        const Array &array = model_.table.arrays[0];
        for (std::int64_t row = 0; row < piece.size[0]; ++row) {
            for (std::int64_t column = 0; column < piece.size[1]; ++column) {
                const auto number = static_cast<std::uint64_t>(
                    (piece.member * array.extent[1] + row) * array.extent[2] + piece.lo[1] + column);
                const std::uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15u + model_.seed * 0xBF58476D1CE4E5B9u;
                const std::uint64_t bits = mixed >> (64 - 8 * model_.itemsize);
                const auto at = piece.address + static_cast<std::uintptr_t>(row * piece.stride[0] + column * piece.stride[1]);
                std::memcpy(reinterpret_cast<void *>(at), &bits, model_.itemsize);
            }
        }
    }

    const Model &model_;
    std::vector<Exact> blocks_;

  public:
    Pieces pieces;
};

// Index rows: 1 byte of chunk, 1 of encoding, 2 of length, 4 of count. A count of 2^32 - 1 stands for what the
// patch's own headers say, so that most inputs get beyond that check; the last row's length is what is left.
Bytes read_rows(const unsigned char *in, std::size_t count, const Array &array, const unsigned char *body,
                std::size_t bytes) {
    Bytes rows(count * kRowBytes);
    std::size_t at = 0;
    for (std::size_t number = 0; number < count; ++number, in += kRowInput) {
        Row row;
        row.chunk = static_cast<std::uint32_t>(in[0] % (array.chunks + (in[0] == 255 ? 1 : 0)));
        row.array = in[0] == 254 ? 1 : 0;
        row.encoding = in[1] & 3;
        row.length = static_cast<std::uint32_t>(in[2] | in[3] << 8);
        if (number + 1 == count && (in[1] & 128) == 0) row.length = static_cast<std::uint32_t>(bytes - std::min(at, bytes));
        std::memcpy(&row.count, in + 4, 4);
        if (row.count == 0xFFFFFFFFu) {
            row.count = 0;
            for (std::size_t head = at + 4; head + 8 <= bytes && at + 4 <= bytes && head < at + 4 + 8 * body[at]; head += 8) {
                std::uint32_t elements;
                std::memcpy(&elements, body + head + 4, 4);
                row.count += elements;
            }
            if (row.encoding == kRaw) row.count = static_cast<std::uint32_t>(box_of(array, row.chunk % array.chunks).elements);
        }
        at += row.length;
        write_row(rows.data() + number * kRowBytes, row);
    }
    return rows;
}

bool distinct(const Bytes &rows) {
    std::set<std::uint32_t> seen;
    for (std::size_t at = 0; at < rows.size(); at += kRowBytes) {
        if (!seen.insert(read_row(rows.data() + at).chunk).second) return false;
    }
    return true;
}

// The first bad row, or none; the reason is not compared, for several may hold.
using Verdict = std::optional<std::size_t>;

Verdict verdict_of(const FirstBad &bad) { return bad.found() ? Verdict(bad.row()) : Verdict(); }

// What resolve gives, laid out as its caller lays it out.
struct Results {
    std::vector<std::int64_t> starts{0}, offsets{0};
    Exact positions{0}, bits{0};
    Exact chunks{0};
    std::vector<std::uint64_t> differences;
    Verdict verdict;

    Staged staged() const {
        Staged view;
        view.chunks = chunks.data.get();
        view.count = chunks.size / 8;
        view.starts = starts.data();
        view.positions = reinterpret_cast<const std::uint32_t *>(positions.data.get());
        view.position_count = positions.size / 4;
        view.offsets = offsets.data();
        view.bits = bits.data.get();
        view.bytes = bits.size;
        return view;
    }
};

Results resolve_all(const Model &model, const Memory &memory, const Exact &rows, const Exact &body, DecodeRun decode) {
    Results out;
    const std::size_t all = rows.size / kRowBytes;
    const Pack pack(rows.data.get(), all, body.data.get(), body.size);
    std::vector<std::int64_t> counts(all, 0);
    FirstBad refused;
    count_held(memory.pieces, pack, decode, 1, counts.data(), refused);
    const std::size_t ready = refused.found() ? refused.row() : all;
    for (std::size_t row = 0; row < ready; ++row) {
        out.starts.push_back(out.starts.back() + counts[row]);
        out.offsets.push_back(out.offsets.back() + ((counts[row] * model.itemsize + 7) & ~std::int64_t{7}));
    }
    out.positions = Exact(static_cast<std::size_t>(out.starts.back()) * 4);
    out.bits = Exact(static_cast<std::size_t>(out.offsets.back()));
    out.chunks = Exact(ready * 8);
    for (std::size_t row = 0; row < ready; ++row) {
        std::memcpy(out.chunks.data.get() + 8 * row, rows.data.get() + row * kRowBytes, 8);
    }
    out.differences.assign(all, 0);
    const ResolvedBits results{out.starts.data(), out.offsets.data(),
                               reinterpret_cast<std::uint32_t *>(out.positions.data.get()), out.bits.data.get(),
                               out.differences.data()};
    FirstBad bad;
    resolve(memory.pieces, Pack(rows.data.get(), ready, body.data.get(), body.size), Under{}, decode, 1, results, bad);
    out.verdict = bad.found() ? verdict_of(bad) : verdict_of(refused);
    return out;
}

struct Outcome {
    Verdict checked;
    Verdict resolved;
    Verdict applied;
    Memory memory;
    Results staged;
};

Outcome run(const Model &model, const Exact &rows, const Exact &body, Instructions instructions) {
    const DecodeRun decode = run_decoder(instructions);
    const Pack pack(rows.data.get(), rows.size / kRowBytes, body.data.get(), body.size);
    FirstBad checked;
    check_pack(model.table, pack, decode, 1, checked);
    Memory memory(model);
    Results staged = resolve_all(model, memory, rows, body, decode);
    require(memory == Memory(model));
    FirstBad applied;
    apply_pack(memory.pieces, pack, decode, 1, applied);
    if (checked.found()) {
        require(verdict_of(applied) == verdict_of(checked));
        require(memory == Memory(model));
    }
    return {verdict_of(checked), staged.verdict, verdict_of(applied), std::move(memory), std::move(staged)};
}

// Of a pack that every kernel accepts.
void check_agreement(const Model &model, const Exact &rows, const Exact &body, Outcome &outcome) {
    const Staged staged = outcome.staged.staged();
    require(first_bad_entry(model.table, staged, 1) == staged.count);
    Memory scattered(model);
    scatter(scattered.pieces, staged, 1);
    require(scattered == outcome.memory);
    require(mismatches(scattered.pieces, staged, 1) == 0);
    FirstBad again;
    apply_pack(scattered.pieces, Pack(rows.data.get(), rows.size / kRowBytes, body.data.get(), body.size),
               run_decoder(Instructions::portable), 1, again);
    require(!again.found());
    require(scattered == outcome.memory);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size < kHeader) return 0;
    const Model model(data);
    const std::size_t count = data[kHeader - 1] % 5;
    if (size < kHeader + count * kRowInput) return 0;
    const unsigned char *rest = data + kHeader + count * kRowInput;
    const Exact body(rest, size - kHeader - count * kRowInput);
    const Bytes listed = read_rows(data + kHeader, count, model.table.arrays[0], body.data.get(), body.size);
    const Exact rows(listed.data(), listed.size());
    Outcome first = run(model, rows, body, Instructions::portable);
    for (const Instructions level : {Instructions::avx2, Instructions::avx512}) {
        if (static_cast<int>(level) > static_cast<int>(supported_instructions())) break;
        const Outcome other = run(model, rows, body, level);
        require(other.checked == first.checked);
        require(other.resolved == first.resolved);
        require(other.applied == first.applied);
        require(other.memory == first.memory);
        require(first.resolved || other.staged.positions == first.staged.positions);
        require(first.resolved || other.staged.bits == first.staged.bits);
        require(first.resolved || other.staged.differences == first.staged.differences);
    }
    if (!first.resolved && !first.applied && distinct(listed)) check_agreement(model, rows, body, first);
    return 0;
}
