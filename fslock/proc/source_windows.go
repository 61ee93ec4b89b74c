package proc

import "time"

func lookAtProcess(pid int) (Look, error) { return lookByGopsutil(pid) }

// absenceProves is false: a Linux beside this Windows (WSL) has its host name and other pids.
func absenceProves() bool { return false }

func bootTime() time.Time { return time.Now().Add(-SinceBoot()).Truncate(time.Second) }
