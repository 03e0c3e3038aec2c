/* Give back pages that hold what they held before: what a worker's `pages.py` cannot do itself.

   A fork shares its memory with the process that it was forked from until it writes, and most of what an interpreter
   writes there are counts of references, which go up and down again: the page is private from then on, with the
   contents that it had.  So the zygote moves its heap to a file in memory, of which its forks have private mappings; and
   a private page with the file's contents can be dropped, upon which it is the file's again.

   Comparing and dropping must be one step: any object of the interpreter's, and what it counts, may lie in these pages.
   Nothing else runs meanwhile: there is one thread, which holds the interpreter, and no signal is taken.

   A shared library without a C library: it is loaded into interpreters that are linked with any. */

#include "../../sandbox/native/kernel.h"

enum {
    SYS_madvise = BY_ARCHITECTURE(28, 233),
    SYS_munmap = BY_ARCHITECTURE(11, 215),
    SYS_pread64 = BY_ARCHITECTURE(17, 67),
    SYS_pwrite64 = BY_ARCHITECTURE(18, 68),
};

enum {
    PROT_READ = 1,
    PROT_WRITE = 2,
    MAP_PRIVATE = 2,
    MAP_FIXED = 16,
    MADV_DONTNEED = 4,
    MADV_POPULATE_READ = 22,
    SIG_SETMASK = 2,
};

/* Documentation/admin-guide/mm/pagemap.rst of Linux. */
#define IS_PRESENT (UINT64_C(1) << 63)
#define IS_SWAPPED (UINT64_C(1) << 62)
#define IS_OF_FILE (UINT64_C(1) << 61)

/* What one read of the page map takes in. */
enum { MAPPED_AT_ONCE = 512 };

/* A part of the heap, in bytes: where it lies, how long it is, and where in the file. */
struct region {
    uint64_t start, size, at;
};

/* The zygote's heap and what is needed to look after it; page sizes differ between machines. */
struct heap {
    const struct region *regions;
    uint64_t count, page_size;
    int64_t file, page_map;
};

/* What a page is done with by `each_page`; less than zero ends it. */
typedef long (*act)(const struct heap *heap, const struct region *region, uint64_t offset, const char *shown);

#define PUBLIC __attribute__((visibility("default")))

/* Another number for other structures than these: a checkout may have a library of older sources. */
PUBLIC extern const uint32_t layout;
PUBLIC const uint32_t layout = 1;

PUBLIC long move_to_file(const struct heap *heap);
PUBLIC long give_back(const struct heap *heap);

/* Do `what` with each page of `region` whose entry in the page map has one of `wanted` and none of `unwanted`; the sum
   of what it returns, or an errno below zero. */
static long each_page(const struct heap *heap, const struct region *region, uint64_t wanted, uint64_t unwanted,
                      act what, const char *shown)
{
    uint64_t entries[MAPPED_AT_ONCE];
    uint64_t pages = region->size / heap->page_size;
    long sum = 0;
    for (uint64_t first = 0; first < pages; first += MAPPED_AT_ONCE) {
        uint64_t number = pages - first < MAPPED_AT_ONCE ? pages - first : MAPPED_AT_ONCE;
        uint64_t bytes = number * sizeof entries[0];
        long got = CALL(SYS_pread64, heap->page_map, entries, bytes,
                        (region->start / heap->page_size + first) * sizeof entries[0]);
        if (got != (long)bytes)
            return got < 0 ? got : -EINVAL;
        for (uint64_t i = 0; i < number; i++) {
            if (!(entries[i] & wanted) || entries[i] & unwanted)
                continue;
            long done = what(heap, region, (first + i) * heap->page_size, shown);
            if (done < 0)
                return done;
            sum += done;
        }
    }
    return sum;
}

static long copy_page(const struct heap *heap, const struct region *region, uint64_t offset, const char *shown)
{
    (void)shown;
    long written = CALL(SYS_pwrite64, heap->file, region->start + offset, heap->page_size, region->at + offset);
    return written == (long)heap->page_size ? 1 : written < 0 ? written : -EINVAL;
}

static long drop_page(const struct heap *heap, const struct region *region, uint64_t offset, const char *shown)
{
    const uint64_t *mine = (const uint64_t *)(region->start + offset);
    const uint64_t *before = (const uint64_t *)(shown + offset);
    for (uint64_t word = 0; word < heap->page_size / sizeof *mine; word++)
        if (mine[word] != before[word])
            return 0;
    return CALL(SYS_madvise, mine, heap->page_size, MADV_DONTNEED) == 0;
}

static uint64_t block_signals(uint64_t mask)
{
    uint64_t before = 0;
    CALL(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof mask);
    return before;
}

/* Copy each region to the file and map it in its place, privately; how many of them, which are the first. */
PUBLIC long move_to_file(const struct heap *heap)
{
    uint64_t mask = block_signals(UINT64_MAX);
    uint64_t moved = 0;
    for (; moved < heap->count; moved++) {
        const struct region *region = &heap->regions[moved];
        if (each_page(heap, region, IS_PRESENT | IS_SWAPPED, 0, copy_page, NULL) < 0)
            break;
        long place = CALL(SYS_mmap, region->start, region->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                          heap->file, region->at);
        if (place != (long)region->start)
            break;
        /* Else each fork would have to look every page up anew; an older kernel has it so. */
        CALL(SYS_madvise, region->start, region->size, MADV_POPULATE_READ);
    }
    block_signals(mask);
    return (long)moved;
}

/* Drop the private pages that hold what the file holds; how many, or an errno below zero. */
PUBLIC long give_back(const struct heap *heap)
{
    uint64_t mask = block_signals(UINT64_MAX);
    long sum = 0;
    for (uint64_t i = 0; i < heap->count && sum >= 0; i++) {
        const struct region *region = &heap->regions[i];
        long shown = CALL(SYS_mmap, 0, region->size, PROT_READ, MAP_PRIVATE, heap->file, region->at);
        if (shown < 0 && shown > -4096) {
            sum = shown;
            break;
        }
        long done = each_page(heap, region, IS_PRESENT, IS_OF_FILE, drop_page, (const char *)shown);
        sum = done < 0 ? done : sum + done;
        CALL(SYS_munmap, shown, region->size);
    }
    block_signals(mask);
    return sum;
}
