#include "encode_runs.hpp"

#include <cstring>
#include <utility>

#include "encode_fields.hpp"
#include "encode_high.hpp"

namespace deltastore {
namespace {

template <typename Element>
struct Writers {
    explicit Writers(Instructions instructions)
        : positions(pack_fields_for<std::uint32_t>(instructions)),
          high(write_high_for(instructions)),
          residues(pack_fields_for<Element>(instructions)) {}

    PackFields<std::uint32_t> positions;
    WriteHigh high;
    PackFields<Element> residues;
};

template <typename Element>
unsigned char *write_run(const Writers<Element> &write, const std::uint32_t *positions, const Element *residues,
                         const RunPlan &run, std::uint64_t universe, unsigned char *out) {
    out = write.positions(positions, run.count, run.low, out);
    const std::size_t bytes = section_bytes(high_bits(run.count, universe, run.low));
    std::memset(out, 0, bytes);
    write.high(positions, run.count, run.low, out);
    return write.residues(residues, run.count, run.width, out + bytes);
}

void write_header(const RunPlan &run, unsigned char *out) {
    out[0] = static_cast<unsigned char>(run.width);
    out[1] = static_cast<unsigned char>(run.low);
    out[2] = 0;
    out[3] = 0;
    std::memcpy(out + 4, &run.count, sizeof run.count);
}

}  // namespace

template <typename Element>
void write_runs(ChangedElements<Element> elements, const PatchPlan &plan, std::uint64_t universe,
                ChangedElements<Element> rest, Instructions instructions, unsigned char *out) {
    const Pick<Element> pick = pick_for<Element>(instructions);
    const Writers<Element> write(instructions);
    const auto runs = static_cast<std::uint32_t>(plan.runs);
    std::memcpy(out, &runs, sizeof runs);
    unsigned char *body = out + 4 + 8 * runs;
    for (int r = 0; r < plan.runs; ++r) {
        const RunPlan &run = plan.run[r];
        write_header(run, out + 4 + 8 * r);
        if (r + 1 < plan.runs) pick(elements, run.last_class, rest);
        body = write_run<Element>(write, elements.positions, elements.residues, run, universe, body);
        std::swap(elements, rest);
    }
}

#define DELTASTORE_RUNS_OF(Element) \
    template void write_runs<Element>(ChangedElements<Element>, const PatchPlan &, std::uint64_t, \
                                      ChangedElements<Element>, Instructions, unsigned char *)

DELTASTORE_RUNS_OF(std::uint8_t);
DELTASTORE_RUNS_OF(std::uint16_t);
DELTASTORE_RUNS_OF(std::uint32_t);
DELTASTORE_RUNS_OF(std::uint64_t);

}  // namespace deltastore
