package record

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// FileSystem names the type of the file system that holds path, or that would hold it if it were made: that of
// the nearest directory above it that is there. Local is true only for types on a list of those that belong to
// one machine, have hard links and are known to lock and to keep times as one expects; network, FUSE and unknown
// ones are not. The name is a type as the kernel has it ("ext4" for all of ext2 to ext4), a number in hex if the
// type has no name here, or "unknown".
//
// A file system that does not answer keeps the caller waiting.
func FileSystem(path string) (name string, local bool) {
	for {
		name, err := fileSystem(path)
		if err == nil {
			return name, isLocal(name)
		}
		up := filepath.Dir(path)
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
		if !missing || up == path {
			return "unknown", false
		}
		path = up
	}
}

// isLocal has Linux's names and those of the BSDs.
func isLocal(name string) bool {
	switch name {
	case "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs", "nilfs2", "ubifs", "tmpfs", "ramfs", "overlay",
		"apfs", "hfs", "ufs":
		return true
	}
	return false
}
