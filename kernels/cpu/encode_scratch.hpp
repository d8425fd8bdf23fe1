// What one worker needs to encode one chunk after another: grown when a larger chunk comes, never filled ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "changed.hpp"
#include "encode_runs.hpp"
#include "pieces.hpp"
#include "row.hpp"
#include "window_cover.hpp"

namespace deltastore {

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};

// Memory that is not cleared and whose content is lost when it grows.
class Room {
  public:
    template <typename T>
    T *of(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        if (bytes > bytes_) {
            bytes_ = 0;
            memory_.reset();
            memory_.reset(std::malloc(bytes));
            if (!memory_) throw std::bad_alloc();
            bytes_ = bytes;
        }
        return static_cast<T *>(memory_.get());
    }

  private:
    std::unique_ptr<void, Free> memory_;
    std::size_t bytes_ = 0;
};

struct EncodeScratch {
    std::vector<Window> before;  // windows of the chunk at hand
    std::vector<Window> after;
    Cover known;
    Cover held;
    Room at, before_bits, after_bits;        // changed elements as they were found
    Room line_before, line_after;            // elements that do not stand one after another
    Room positions, residues, classes;       // the same elements as they are encoded
    Room rest_positions, rest_residues;      // those of the runs to come
    Room rest_classes;
    Room whole_before, whole_after;          // copies of a chunk
};

// The rows and patches of some chunks, one after another.
class PatchesOut {
  public:
    // Room for `bytes` of the next patch and kWriteSlack more.
    unsigned char *next(std::size_t bytes) {
        const std::size_t wanted = size_ + bytes + kWriteSlack;
        if (wanted > capacity_) {
            const std::size_t capacity = wanted > 2 * capacity_ ? wanted : 2 * capacity_;
            void *grown = std::realloc(body_.get(), capacity);
            if (grown == nullptr) throw std::bad_alloc();
            (void)body_.release();
            body_.reset(grown);
            capacity_ = capacity;
        }
        return static_cast<unsigned char *>(body_.get()) + size_;
    }

    // Counts the patch that was written to what next() gave; `changed` elements of its chunk are not what they were.
    void add(const Row &row, std::uint32_t changed) {
        rows_.push_back(row);
        changed_.push_back(changed);
        size_ += row.length;
    }

    const std::vector<Row> &rows() const { return rows_; }
    const std::vector<std::uint32_t> &changed() const { return changed_; }
    const void *body() const { return body_.get(); }
    std::size_t size() const { return size_; }

    void release() {
        std::vector<Row>().swap(rows_);
        std::vector<std::uint32_t>().swap(changed_);
        body_.reset();
        size_ = capacity_ = 0;
    }

  private:
    std::vector<Row> rows_;
    std::vector<std::uint32_t> changed_;
    std::unique_ptr<void, Free> body_;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace deltastore
