package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// tooLong is the first duration that a table no longer tells apart: its columns are a few cells wide.
const tooLong = 1000 * day

// Age returns d in one unit, rounded down, for tables: "0s", "59s", "1m", "2h", "5d". Ages are never negative:
// a negative d is "0s". From 1000 days on it is "999d+".
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < tooLong:
		return fmt.Sprintf("%dd", d/day)
	default:
		return "999d+"
	}
}

// Long returns d in two units, rounded down, for details: "9s", "4m 12s", "2h 5m", "5d 3h"; the second is
// left out when it is zero. A negative d is "0s".
func Long(d time.Duration) string {
	d = max(0, d)
	for _, unit := range [...]struct {
		size, next time.Duration
		format     string
		short      string
	}{
		{day, time.Hour, "%dd %dh", "%dd"},
		{time.Hour, time.Minute, "%dh %dm", "%dh"},
		{time.Minute, time.Second, "%dm %ds", "%dm"},
	} {
		if d < unit.size {
			continue
		}
		if rest := d % unit.size / unit.next; rest > 0 {
			return fmt.Sprintf(unit.format, d/unit.size, rest)
		}
		return fmt.Sprintf(unit.short, d/unit.size)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Signed returns what is left of a wait, for tables: seconds below 100 s ("70s"), else one unit as Age does. It is
// rounded up to a second, so that an age and what is left of its limit add up to the limit. A wait that is
// over is negative: "-46s".
func Signed(left time.Duration) string {
	left = min(max(left, -tooLong), tooLong) // neither rounding nor changing the sign can overflow
	sign := ""
	if left <= -time.Second {
		sign, left = "-", -left
	} else {
		left += time.Second - 1
	}
	if left < 100*time.Second {
		return fmt.Sprintf("%s%ds", sign, left/time.Second)
	}
	return sign + Age(left)
}

// Count returns how many there are of what: "1 lease", "0 entries", "3,412 locks".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		what = stem + "ie"
	}
	return fmt.Sprintf("%s %ss", grouped(n), what)
}

// grouped is a number with a comma before every three digits but the first ones: what is counted here can be many, and
// 100000 is easily read as 10000.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
