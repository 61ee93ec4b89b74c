package record

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	tokenSuffix = ".reclaim"
	tempMark    = ".tmp."
	maxName     = 255 // bytes in a file name, on every file system of the allow-list
)

// TokenName is the name of the reclaim token of a lock, both without their directory. The token of a name over
// 246 bytes is too long for most file systems; the original cannot create it either.
func TokenName(lockName string) string { return "." + lockName + tokenSuffix }

// ParseToken reports whether a file name is a token's, and of which lock. It does not say whether that is a
// name that a lock would have: an editor's ".notes.reclaim" is the token of "notes".
func ParseToken(name string) (lockName string, ok bool) {
	s, dot := strings.CutPrefix(name, ".")
	s, end := strings.CutSuffix(s, tokenSuffix)
	if !dot || !end || s == "" {
		return "", false
	}
	return s, true
}

// TempName is a name for the temp of a lock, both without their directory: this process's pid, the time in
// nanoseconds and a number that tells apart what one process makes in one nanosecond (drawn, not counted, so
// that two may still meet: create it with O_EXCL). A lock name that is too long for this is cut at its end.
func TempName(lockName string) string {
	tail := fmt.Sprintf("%s%d.%d.%d", tempMark, os.Getpid(), time.Now().UnixNano(), rand.Uint32())
	keep := maxName - len(".") - len(tail)
	if len(lockName) > keep {
		for cut := keep; cut > keep-utf8.UTFMax; cut-- {
			if utf8.RuneStart(lockName[cut]) {
				keep = cut // some file systems take only whole letters
				break
			}
		}
		lockName = lockName[:keep]
	}
	return "." + lockName + tail
}

// ParseTemp reports whether a file name is that of a lock's temp, of which lock (as far as TempName could keep its
// name) and by which process.
func ParseTemp(name string) (lockName string, pid uint32, ok bool) {
	s, dot := strings.CutPrefix(name, ".")
	at := strings.LastIndex(s, tempMark)
	if !dot || at <= 0 {
		return "", 0, false
	}
	numbers := strings.Split(s[at+len(tempMark):], ".")
	if len(numbers) != 3 || !isNumber(numbers[1]) || !isNumber(numbers[2]) {
		return "", 0, false
	}
	n, err := strconv.ParseUint(numbers[0], 10, 32)
	if err != nil || !isNumber(numbers[0]) {
		return "", 0, false
	}
	return s[:at], uint32(n), true
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
