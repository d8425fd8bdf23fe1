// Threads that live for one call: as many as the caller says, joined before it returns.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace deltastore {

// Calls work(worker, task) once for every task below `tasks`, in ascending order within each of the at most
// `threads` workers. The caller's own thread is worker 0. The first exception stops the rest and is thrown here.
template <typename Work>
void run_tasks(std::size_t threads, std::size_t tasks, Work &&work) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    std::mutex failing;
    const auto worker = [&](std::size_t number) {
        try {
            for (std::size_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) work(number, task);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
            next.store(tasks);
        }
    };
    std::vector<std::thread> others;
    try {
        for (std::size_t number = 1; number < std::min(threads, tasks); ++number) others.emplace_back(worker, number);
    } catch (...) {
        // No more threads to be had: those that there are do all of it.
    }
    worker(0);
    for (std::thread &other : others) other.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace deltastore
