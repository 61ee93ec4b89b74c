//go:build darwin || freebsd

package record

import "golang.org/x/sys/unix"

func fileSystem(path string) (string, error) {
	var st unix.Statfs_t
	if _, err := retry(func() (int, error) { return 0, unix.Statfs(path, &st) }); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(st.Fstypename[:]), nil
}
