// SPDX-License-Identifier: Apache-2.0
/// Processes of one host that know one path: a file of records, each signed by its writer, so that a killed run's are known for what they
/// are.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace collectx {
inline namespace v0 {

/// Models Rendezvous. The file exists while a group is joining and is removed afterwards; what a killed run has left there is ignored and
/// overwritten, what a living one has put is respected. A file that holds anything else is refused and not touched.
class file_rendezvous {
 public:
  static result<file_rendezvous> create(char const* path, int rank, int size) noexcept {
    file_rendezvous self(rank, size);
    if (std::strlen(path) >= sizeof self.path_) return status::failure(errc::invalid_argument, rank, "rendezvous: the path is too long");
    std::snprintf(self.path_, sizeof self.path_, "%s", path);
    if (detail::read_small_file("/proc/sys/kernel/random/boot_id", self.boot_, sizeof self.boot_) < 36) {
      return status::system(errno, "rendezvous: no boot id in /proc");
    }
    self.boot_[36] = 0;
    return self;
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  status put(char const* key, rendezvous_value const& value) noexcept {
    contents file;
    if (status s = open(file, O_RDWR | O_CREAT, detail::monotonic_now() + lock_patience); !s) return s;
    bool living = false;
    record r;
    for (char* at = file.text.get(); next(at, r);) {
      if (!alive(r)) continue;
      living = true;
      if (std::strcmp(r.key, key) == 0) {
        return status::failure(errc::busy, r.rank, "rendezvous: rank %d (process %llu) has put %s in %s", r.rank,
                               static_cast<unsigned long long>(r.writer.pid), key, path_);
      }
    }
    if (!living && ::ftruncate(file.handle.get(), 0) != 0) return status::system(errno, "rendezvous: cannot empty %s", path_);

    char line[line_capacity];
    process_identity const me = this_process();
    int used = std::snprintf(line, sizeof line, "+ %llu %llu %llu %s %d %.31s ", static_cast<unsigned long long>(me.pid),
                             static_cast<unsigned long long>(me.start), static_cast<unsigned long long>(me.space), boot_, rank_, key);
    for (std::size_t i = 0; i < value.size(); ++i) {
      unsigned const byte = static_cast<unsigned>(value.data()[i]);
      used += std::snprintf(line + used, sizeof line - static_cast<std::size_t>(used), "%02x", byte);
    }
    line[used++] = '\n';
    ::off_t const end = ::lseek(file.handle.get(), 0, SEEK_END);
    ssize_t const written = ::pwrite(file.handle.get(), line, static_cast<std::size_t>(used), end);
    if (written == used) return {};
    int const error = written < 0 ? errno : ENOSPC;
    if (::ftruncate(file.handle.get(), end) != 0) ::unlink(path_);  // half a record would be taken for somebody else's file
    return status::system(error, "rendezvous: cannot write %s", path_);
  }

  result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept {
    for (;; detail::nap(2'000'000)) {
      contents file;
      status const s = open(file, O_RDONLY, deadline);
      record r;
      if (s) {
        for (char* at = file.text.get(); next(at, r);) {
          if (std::strcmp(r.key, key) == 0 && alive(r)) return r.value;
        }
      } else if (s.native() != ENOENT) {
        return s;
      }
      if (detail::monotonic_now() >= deadline) {
        return status::failure(errc::timeout, -1, "rendezvous: nobody has put %s in %s", key, path_);
      }
    }
  }

  void conclude() noexcept {
    contents file;
    if (status s = open(file, O_RDWR, detail::monotonic_now() + lock_patience); !s) return;
    bool living = false;
    record r;
    process_identity const me = this_process();
    for (char* at = file.text.get(); next(at, r);) {
      if (r.writer == me && r.rank == rank_) {
        if (::pwrite(file.handle.get(), "-", 1, r.line - file.text.get()) != 1) ::unlink(path_);
      } else if (alive(r)) {
        living = true;
      }
    }
    if (!living) ::unlink(path_);
  }

 private:
  static constexpr std::size_t line_capacity = 1024, file_capacity = std::size_t{1} << 20;
  static constexpr nanoseconds lock_patience = 10'000'000'000;

  struct record {
    char const* line = nullptr;
    bool valid = false;
    process_identity writer;
    char boot[40] = {};
    int rank = -1;
    char key[32] = {};
    rendezvous_value value;
  };
  struct contents {
    detail::descriptor handle;  // holds the lock
    std::unique_ptr<char[]> text;
  };

  file_rendezvous(int rank, int size) noexcept : rank_(rank), size_(size) {}

  bool alive(record const& r) const noexcept {
    return r.valid && std::strcmp(r.boot, boot_) == 0 && !is_dead(r.writer, this_process().space);
  }

  /// Opens and locks the file that the path names, and reads it.
  status open(contents& file, int flags, nanoseconds deadline) const noexcept {
    for (;; detail::nap(1'000'000)) {
      file.handle = detail::descriptor(::open(path_, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
      if (!file.handle) return status::system(errno, "rendezvous: cannot open %s", path_);
      struct ::stat mine {
      }, named{};
      bool const locked = ::flock(file.handle.get(), LOCK_EX | LOCK_NB) == 0;
      if (!locked && errno != EWOULDBLOCK && errno != EINTR) return status::system(errno, "rendezvous: cannot lock %s", path_);
      if (locked) {
        if (::fstat(file.handle.get(), &mine) != 0) return status::system(errno, "rendezvous: cannot look at %s", path_);
        // The last one may have removed the file between our open and our lock.
        if (::stat(path_, &named) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev) return read(file, mine);
      }
      if (detail::monotonic_now() >= deadline) return status::failure(errc::timeout, -1, "rendezvous: %s stays locked", path_);
    }
  }

  status read(contents& file, struct ::stat const& facts) const noexcept {
    std::size_t const bytes = static_cast<std::size_t>(facts.st_size);
    if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() || bytes > file_capacity) return foreign(0);
    file.text.reset(new (std::nothrow) char[bytes + 1]);
    if (!file.text) return status::failure(errc::out_of_memory, rank_, "rendezvous: no memory for %zu bytes", bytes);
    ssize_t const got = ::pread(file.handle.get(), file.text.get(), bytes, 0);
    if (got != static_cast<ssize_t>(bytes)) return status::system(errno, "rendezvous: cannot read %s", path_);
    file.text[bytes] = 0;
    char* at = file.text.get();
    record r;
    int line = 1;
    while (next(at, r)) ++line;
    return at == file.text.get() + bytes ? status{} : foreign(line);
  }

  /// `line`: what is not a record, or 0 where it is not even a file.
  status foreign(int line) const noexcept {
    if (line == 0) return status::failure(errc::invalid_argument, rank_, "rendezvous: %s is no rendezvous file of this user", path_);
    return status::failure(errc::invalid_argument, rank_, "rendezvous: %s is no rendezvous file: line %d is none of its records", path_,
                           line);
  }

  /// Takes the next line apart and moves on; false at the end, or at a line that is not a record.
  static bool next(char*& at, record& r) noexcept {
    if (*at == 0) return false;
    char flag = 0, digits[2 * rendezvous_value::capacity + 2] = {};
    unsigned long long pid = 0, start = 0, space = 0;
    int length = 0;
    if (std::sscanf(at, "%c %llu %llu %llu %36s %d %31s %512[0-9a-f]%n", &flag, &pid, &start, &space, r.boot, &r.rank, r.key, digits,
                    &length) != 8 ||
        at[length] != '\n' || (flag != '+' && flag != '-')) {
      return false;
    }
    std::byte bytes[rendezvous_value::capacity];
    std::size_t const count = std::strlen(digits) / 2;
    for (std::size_t i = 0; i < count; ++i) {
      char const pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
      bytes[i] = static_cast<std::byte>(std::strtoul(pair, nullptr, 16));
    }
    r.line = at;
    r.valid = flag == '+';
    r.writer = {pid, start, space};
    r.value = rendezvous_value(bytes, count);
    at += length + 1;
    return true;
  }

  char path_[1024] = {};
  char boot_[48] = {};
  int rank_;
  int size_;
};
static_assert(Rendezvous<file_rendezvous>);

}  // namespace v0
}  // namespace collectx
