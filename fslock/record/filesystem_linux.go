package record

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func fileSystem(path string) (string, error) {
	var st unix.Statfs_t
	if _, err := retry(func() (int, error) { return 0, unix.Statfs(path, &st) }); err != nil {
		return "", err
	}
	magic := uint32(st.Type)
	if magic == unix.FUSE_SUPER_MAGIC {
		return fuseType(path), nil
	}
	if name := magicName(magic); name != "" {
		return name, nil
	}
	return fmt.Sprintf("%#x", magic), nil
}

func magicName(magic uint32) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case 0x2fc12fc1:
		return "zfs"
	case unix.BCACHEFS_SUPER_MAGIC:
		return "bcachefs"
	case 0x3153464a:
		return "jfs"
	case unix.REISERFS_SUPER_MAGIC:
		return "reiserfs"
	case unix.NILFS_SUPER_MAGIC:
		return "nilfs2"
	case 0x24051905:
		return "ubifs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "cifs"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "afs"
	case unix.CODA_SUPER_MAGIC:
		return "coda"
	case unix.OCFS2_SUPER_MAGIC:
		return "ocfs2"
	case 0x01161970:
		return "gfs2"
	case 0x0bd00bd0:
		return "lustre"
	case 0x47504653:
		return "gpfs"
	case 0x786f4256:
		return "vboxsf"
	case unix.MSDOS_SUPER_MAGIC:
		return "vfat"
	case unix.EXFAT_SUPER_MAGIC:
		return "exfat"
	case 0x7366746e:
		return "ntfs3"
	case unix.ECRYPTFS_SUPER_MAGIC:
		return "ecryptfs"
	case unix.SQUASHFS_MAGIC:
		return "squashfs"
	case unix.PROC_SUPER_MAGIC:
		return "proc"
	case unix.SYSFS_MAGIC:
		return "sysfs"
	}
	return ""
}

// fuseType tells apart what shares FUSE's number (virtiofs, fuse.sshfs, fuseblk, ...) by the mount table, which
// costs too much for every look and changes nothing but the name.
func fuseType(path string) string {
	const plain = "fuse"
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return plain
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return plain
	}
	return mountType(table, unix.Major(st.Dev), unix.Minor(st.Dev), plain)
}

// mountType finds the type of a device's mount in a table of the form of /proc/self/mountinfo.
func mountType(table []byte, major, minor uint32, otherwise string) string {
	device := fmt.Sprintf("%d:%d", major, minor)
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		mount, super, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		name, _, _ := strings.Cut(super, " ")
		if len(fields) > 2 && fields[2] == device && name != "" {
			return name
		}
	}
	return otherwise
}
