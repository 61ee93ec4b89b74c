package record

import (
	"path/filepath"
	"testing"
)

func TestFileSystemOfWhatIsNotThereIsThatOfItsDirectory(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "x.lock"), nil)
	name, local := FileSystem(dir)
	if name == "" || local != isLocal(name) {
		t.Fatalf("%q %v", name, local)
	}
	for _, path := range []string{
		file, filepath.Join(dir, "no"), filepath.Join(dir, "no", "no", "no.lock"), filepath.Join(file, "no"),
		filepath.Join(file, "no", "no"),
	} {
		if n, l := FileSystem(path); n != name || l != local {
			t.Errorf("%s: %q %v, want %q %v", path, n, l, name, local)
		}
	}
	if name, local := FileSystem("a\x00b"); name != "unknown" || local {
		t.Errorf("%q %v", name, local)
	}
	t.Chdir(dir)
	for _, path := range []string{"", ".", "no", filepath.Join("no", "no.lock")} {
		if n, l := FileSystem(path); n != name || l != local {
			t.Errorf("%q: %q %v, want %q %v", path, n, l, name, local)
		}
	}
}

func TestOnlyKnownFileSystemsAreLocal(t *testing.T) {
	for _, name := range []string{"ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay", "apfs", "ufs"} {
		if !isLocal(name) {
			t.Error(name)
		}
	}
	for _, name := range []string{
		"", "unknown", "nfs", "cifs", "smbfs", "fuse", "fuse.sshfs", "fuseblk", "virtiofs", "9p", "ceph", "lustre",
		"ocfs2", "vboxsf", "ecryptfs",
		"0x12345678", "EXT4", "vfat", "ntfs3",
	} {
		if isLocal(name) {
			t.Error(name)
		}
	}
}
