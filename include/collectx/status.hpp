// SPDX-License-Identifier: Apache-2.0
/// How things end: `errc` says what is wrong, `status` says it in words with the rank to blame, `result<T>` is a value or a status.
///
/// The library never throws, prints or aborts. `result<T>::value()` is the one door for those who like exceptions.
#pragma once

#include "collectx/config.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace collectx {
inline namespace v0 {

enum class errc : int {
  ok = 0,
  invalid_argument,       ///< the caller passed something impossible; nothing was sent, correct the call and repeat it
  invalid_configuration,  ///< an option cannot work with this group; change the named option and join again
  not_supported,          ///< this combination is not offered; the text names one that is
  mismatch,               ///< ranks made different calls; make them agree, then start a new communicator
  peer_lost,              ///< a rank died; `rank()` names it, go on without it or stop
  timeout,                ///< the deadline passed; `rank()` names whom everybody waits for
  aborted,                ///< a rank called abort(); `rank()` names it
  out_of_memory,          ///< memory could not be had; the text says how much and where
  busy,                   ///< another call is under way on this communicator; wait for it
  system,                 ///< the operating system or a driver refused; `native()` is its number
};

namespace detail {
struct category final : std::error_category {
  char const* name() const noexcept override { return "collectx"; }
  std::string message(int code) const override {
    constexpr char const* texts[] = {"ok",
                                     "invalid argument",
                                     "invalid configuration",
                                     "not supported",
                                     "ranks made different calls",
                                     "a rank died",
                                     "timeout",
                                     "aborted",
                                     "out of memory",
                                     "busy",
                                     "system error"};
    constexpr int known = static_cast<int>(sizeof texts / sizeof *texts);
    return code >= 0 && code < known ? texts[code] : "unknown";
  }
};
}  // namespace detail

inline std::error_category const& error_category() noexcept {
  static detail::category const instance;
  return instance;
}
inline std::error_code make_error_code(errc code) noexcept { return {static_cast<int>(code), error_category()}; }

/// What came of a call: ok, or a code, the rank to blame (-1: nobody in particular), errno or another library's number where there was one,
/// and a sentence.
/// Needs no memory beyond itself, so that it can be made when there is none left.
class [[nodiscard]] status {
 public:
  static constexpr std::size_t capacity = 384;

  constexpr status() noexcept {}  // not defaulted: `return {}` would write over all of text_
  status(status const& other) noexcept { *this = other; }
  status& operator=(status const& other) noexcept {
    code_ = other.code_;
    rank_ = other.rank_;
    native_ = other.native_;
    if (code_ != errc::ok) std::memcpy(text_, other.text_, capacity);
    return *this;
  }

  /// A failure with a printf-style sentence.
  [[gnu::format(printf, 3, 4)]] static status failure(errc code, int rank, char const* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    status s;
    s.assign(code, rank, 0, format, arguments);
    va_end(arguments);
    return s;
  }

  /// A refusal of the operating system: the sentence is followed by strerror(error).
  [[gnu::format(printf, 2, 3)]] static status system(int error, char const* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    status s;
    s.assign(errc::system, -1, error, format, arguments);
    va_end(arguments);
    std::size_t const used = std::strlen(s.text_);
    std::snprintf(s.text_ + used, capacity - used, ": %s", std::strerror(error));
    return s;
  }

  /// A refusal of another library, by its number.
  [[gnu::format(printf, 4, 5)]] static status foreign(errc code, int rank, int native, char const* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    status s;
    s.assign(code, rank, native, format, arguments);
    va_end(arguments);
    return s;
  }

  constexpr bool ok() const noexcept { return code_ == errc::ok; }
  constexpr explicit operator bool() const noexcept { return ok(); }
  constexpr errc code() const noexcept { return code_; }
  constexpr int rank() const noexcept { return rank_; }
  constexpr int native() const noexcept { return native_; }
  char const* what() const noexcept { return ok() ? "ok" : text_; }

 private:
  void assign(errc code, int rank, int native, char const* format, std::va_list arguments) noexcept {
    code_ = code;
    rank_ = rank;
    native_ = native;
    int const prefix = std::snprintf(text_, capacity, "collectx: ");
    std::vsnprintf(text_ + prefix, capacity - static_cast<std::size_t>(prefix), format, arguments);
  }

  errc code_ = errc::ok;
  int rank_ = -1;
  int native_ = 0;
  char text_[capacity];  // read only when code_ is not ok
};

#if COLLECTX_EXCEPTIONS
class error : public std::system_error {
 public:
  explicit error(status const& s) : std::system_error(make_error_code(s.code()), s.what()), status_(s) {}
  status const& why() const noexcept { return status_; }

 private:
  status status_;
};
#endif

/// A T or the status that says why there is none.
template <class T>
class [[nodiscard]] result {
 public:
  result(T value) noexcept : has_value_(true) { ::new (static_cast<void*>(&value_)) T(std::move(value)); }
  result(status failure) noexcept : error_(failure) {}
  result(result&& other) noexcept : has_value_(other.has_value_), error_(other.error_) {
    if (has_value_) ::new (static_cast<void*>(&value_)) T(std::move(other.value_));
  }
  result& operator=(result&& other) noexcept {
    if (this == &other) return *this;
    this->~result();
    return *::new (static_cast<void*>(this)) result(std::move(other));  // a T need not be assignable
  }
  ~result() {
    if (has_value_) value_.~T();
  }

  bool has_value() const noexcept { return has_value_; }
  explicit operator bool() const noexcept { return has_value_; }
  status const& error() const noexcept { return error_; }

  /// @pre has_value()
  T& operator*() & noexcept { return value_; }
  T&& operator*() && noexcept { return std::move(value_); }
  T* operator->() noexcept { return &value_; }

#if COLLECTX_EXCEPTIONS
  /// The value; throws `collectx::error` where there is none.
  T& value() & { return require(), value_; }
  T&& value() && { return require(), std::move(value_); }
#endif

 private:
#if COLLECTX_EXCEPTIONS
  void require() const {
    if (!has_value_) throw collectx::error(error_);
  }
#endif
  bool has_value_ = false;
  status error_;
  union {
    T value_;
  };
};

namespace detail {
/// f(), or a failure where that runs out of memory or gets no thread. Without exceptions a container ends the process instead.
template <class F>
auto within_memory([[maybe_unused]] int rank, F&& f) noexcept -> decltype(f()) {
#if COLLECTX_EXCEPTIONS
  try {
    return f();
  } catch (std::bad_alloc const&) {
    return status::failure(errc::out_of_memory, rank, "rank %d has no memory left", rank);
  } catch (std::system_error const& e) {  // std::thread's
    return status::failure(errc::out_of_memory, rank, "rank %d gets no thread or other means of the system: %s", rank, e.what());
  }
#else
  return f();
#endif
}
}  // namespace detail

}  // namespace v0
}  // namespace collectx

template <>
struct std::is_error_code_enum<collectx::errc> : std::true_type {};
