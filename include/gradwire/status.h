/* Status codes of the library, and the sentence that goes with the last error.
 *
 * Every function that can fail returns a gw_status, and hands its results back through out parameters. If a function
 * that creates or finds an object fails, *out is NULL. 0 is success. Negative values are errors. Positive values mean
 * "not finished yet". Numbers are fixed and never reused.
 *
 * A pointer may be NULL if the function's comment says so, or if nothing would be read or written there (an array of 0
 * elements). A function that returns a status answers any other NULL with GW_ERR_ARGUMENT. */
#ifndef GRADWIRE_STATUS_H
#define GRADWIRE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GW_STATIC) || !defined(__GNUC__)
#define GW_API
#else
#define GW_API __attribute__((visibility("default")))
#endif

/* A compiler warns if a program does not look at the status of a call. If you know that it does not matter, say so in
 * an `if`. */
#ifdef __GNUC__
#define GW_MUST_CHECK __attribute__((warn_unused_result))
#else
#define GW_MUST_CHECK
#endif

/* Code, number and text stand in one list so that they cannot drift apart. */
#define GW_STATUS_MAP(X)                                                                                               \
    X(GW_OK, 0, "success")                                                                                             \
    X(GW_NOT_YET, 1, "not finished yet")                                                                               \
    /* arguments */                                                                                                    \
    X(GW_ERR_ARGUMENT, -1, "an argument is outside its legal range")                                                   \
    X(GW_ERR_SPEC, -2, "the codec specification is not valid")                                                         \
    X(GW_ERR_CAPACITY, -3, "the output buffer is too small")                                                           \
    X(GW_ERR_ORDER, -4, "the call is not legal at this point")                                                         \
    /* frames */                                                                                                       \
    X(GW_ERR_FRAME_CUT, -20, "the frame is cut short")                                                                 \
    X(GW_ERR_FRAME_MAGIC, -21, "these bytes are not a Gradwire frame")                                                 \
    X(GW_ERR_FRAME_VERSION, -22, "the frame is of a version this library cannot read")                                 \
    X(GW_ERR_FRAME_CHECKSUM, -23, "the frame's checksum does not match its bytes")                                     \
    X(GW_ERR_FRAME_FIELD, -24, "the frame's header has an invalid field")                                              \
    X(GW_ERR_FRAME_PAYLOAD, -25, "the frame's payload contradicts its header")                                         \
    X(GW_ERR_FRAME_MISMATCH, -26, "the frames do not belong together")                                                 \
    /* memory */                                                                                                       \
    X(GW_ERR_MEMORY, -40, "out of memory")                                                                             \
    /* values */                                                                                                       \
    X(GW_ERR_NONFINITE, -50, "the gradient holds a NaN or an infinity")                                                \
    /* transport */                                                                                                    \
    X(GW_ERR_TIMEOUT, -60, "the deadline passed")                                                                      \
    X(GW_ERR_PEER, -61, "another member failed or left")                                                               \
    X(GW_ERR_CLOSED, -62, "the link is closed")                                                                        \
    /* machine */                                                                                                      \
    X(GW_ERR_SYSTEM, -80, "the operating system refused")                                                              \
    X(GW_ERR_UNSUPPORTED, -81, "this build or machine does not support that")

typedef enum gw_status {
#define GW_STATUS_ENUM(name, number, text) name = (number),
    GW_STATUS_MAP(GW_STATUS_ENUM)
#undef GW_STATUS_ENUM
} gw_status;

/* The general text of a status code; "unknown status" for a number that is not in the list. It is never NULL. Static
 * storage. Any thread may call it. */
GW_API const char *gw_status_text(gw_status status);

/* The sentence about the last error of this thread. It says what is wrong, where, and what would be right. "" if no
 * call has failed yet. It is one line of UTF-8; other bytes and control characters are written as \xNN, also those of
 * names that others gave. Read it right after the call that failed: another call may change it, also one that
 * succeeds. Functions that destroy something leave it as it is. */
GW_API const char *gw_last_error(void);

/* Stores a sentence for gw_last_error() of this thread, and returns `status`. It is for links that a program brings
 * itself. It is the only function whose status need not be checked. format: as of printf.
 *
 *     return gw_fail(GW_ERR_PEER, "rank %u left the link", to); */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
GW_API gw_status
gw_fail(gw_status status, const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
