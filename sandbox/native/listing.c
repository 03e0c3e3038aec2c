#include "listing.h"

#include "text.h"

/* struct linux_dirent64 */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    unsigned char type;
    char name[];
};

bool open_listing(struct listing *listing, const char *path)
{
    listing->size = listing->at = 0;
    listing->folder = CALL(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return listing->folder >= 0;
}

long next_listed(struct listing *listing)
{
    for (;;) {
        if (listing->at >= listing->size) {
            listing->at = 0;
            listing->size = CALL(SYS_getdents64, listing->folder, listing->entries, sizeof listing->entries);
            if (listing->size <= 0) {
                CALL(SYS_close, listing->folder);
                return -1;
            }
        }
        const struct entry *entry = (const struct entry *)((const char *)listing->entries + listing->at);
        listing->at += entry->size;
        const long number = number_of(entry->name);
        if (number >= 0)
            return number;
    }
}
