package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// GroupEnded reports whether all that the system still knows of a process group has ended, and only waits for somebody to
// ask how. Orphans are asked by the machine's first process, which may take seconds, or in a container never do it. It is
// false also where that cannot be told, and for a group of which nothing is left.
func GroupEnded(pgrp int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // a bad pattern is its only error
	want, found := []byte(strconv.Itoa(pgrp)), false
	for _, stat := range stats {
		data, err := os.ReadFile(stat)
		if err != nil {
			continue // it has gone meanwhile
		}
		// PID (NAME) STATE PARENT GROUP, and the name may be anything.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) < 3 || !bytes.Equal(fields[2], want) {
			continue
		}
		if state := string(fields[0]); state != "Z" && state != "X" {
			return false
		}
		found = true
	}
	return found
}
