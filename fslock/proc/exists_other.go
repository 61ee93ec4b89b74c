//go:build !unix

package proc

import "github.com/shirou/gopsutil/v4/process"

func exists(pid int) bool {
	there, err := process.PidExists(int32(pid))
	return there || err != nil
}
