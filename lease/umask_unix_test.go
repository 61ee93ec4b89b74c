//go:build unix

package lease

import "syscall"

func setUmask(mask int) error {
	syscall.Umask(mask)
	return nil
}
