package record

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestKernelsNumbersHaveNames(t *testing.T) {
	if name, local := FileSystem("/proc/self"); name != "proc" || local {
		t.Errorf("%q %v", name, local)
	}
	for magic, want := range map[uint32]string{
		0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0xf2f52010: "f2fs", 0x2fc12fc1: "zfs",
		0x01021994: "tmpfs", 0x794c7630: "overlay",
		0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "cifs", 0x517b: "cifs", 0x01021997: "9p", 0x00c36400: "ceph",
		0x1161970:  "gfs2",
		0x5346414f: "afs", 0x73757245: "coda", 0x7461636f: "ocfs2", 0x0bd00bd0: "lustre", 0x47504653: "gpfs",
		0x786f4256: "vboxsf",
		0x4d44:     "vfat", 0x2011bab0: "exfat", 0x7366746e: "ntfs3", 0xf15f: "ecryptfs", 0x73717368: "squashfs",
		0x62656572: "sysfs",
		0xca451a4e: "bcachefs", 0x3153464a: "jfs", 0x52654973: "reiserfs", 0x3434: "nilfs2", 0x24051905: "ubifs",
		0x858458f6: "ramfs",
		0x12345678: "",
	} {
		if got := magicName(magic); got != want {
			t.Errorf("%#x: %q, want %q", magic, got, want)
		}
	}
}

func TestFuseIsNamedByTheMountTable(t *testing.T) {
	const table = `24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
36 35 98:0 /mnt1 /mnt - 2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
81 30 0:44 / /host rw,relatime - virtiofs share rw
82 30 0:45 / /far\040away rw,nosuid,nodev shared:9 master:3 - fuse.sshfs me@there:/ rw
broken
`
	for minor, want := range map[uint32]string{44: "virtiofs", 45: "fuse.sshfs", 46: "fuse"} {
		if got := mountType([]byte(table), 0, minor, "fuse"); got != want {
			t.Errorf("0:%d: %q, want %q", minor, got, want)
		}
	}
	// The real table: whatever holds this directory, it is named as the kernel names it.
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if got, want := fuseType(dir), magicName(uint32(st.Type)); got != want {
		skip(t, "the mount table says "+got+", the number "+want)
	}
	if got := fuseType(dir + "/no"); got != "fuse" {
		t.Error(got)
	}
}
