package verdict

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// The years beyond which a stamp is clipped, so that sums and differences of times never wrap round. The first
// millisecond is left out: it is the zero time, which means that there is no stamp.
const (
	minMilli = -62_135_596_800_000 + 1 // 0001-01-01
	maxMilli = 253_402_300_799_999     // 9999-12-31
)

// Milli is the time of a stamp in ms since the epoch, clipped to the years 1 to 9999.
func Milli(ms int64) time.Time { return time.UnixMilli(min(max(ms, minMilli), maxMilli)) }

// MilliU is Milli for unsigned stamps.
func MilliU(ms uint64) time.Time { return Milli(int64(min(ms, math.MaxInt64))) }

// Age is how long ago t was at now: never negative, and clipped at the longest duration.
func Age(t, now time.Time) time.Duration { return max(0, now.Sub(t)) }

const clockSlack = 2 * time.Second

// wrongClock tells which of the stamps cannot be right at now, or "".
func wrongClock(now, acquired, renewed time.Time) string {
	oldest := time.Unix(946_684_800, 0) // 2000-01-01
	switch {
	case renewed.Sub(now) > clockSlack:
		return "its last beat is " + ago(renewed.Sub(now)) + " in the future"
	case acquired.Sub(now) > clockSlack:
		return "it was taken " + ago(acquired.Sub(now)) + " in the future"
	case renewed.Before(oldest) || acquired.Before(oldest):
		return "a stamp is from before the year 2000"
	case acquired.Sub(renewed) > 24*time.Hour:
		return "it was taken over a day after its last beat"
	}
	return ""
}

// ago writes a duration with at most two units, whole seconds, for sentences.
func ago(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s < 120: // most there are
		return strconv.FormatInt(s, 10) + "s"
	case s < 2*3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 2*86400:
		return fmt.Sprintf("%dh %dm", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%dd %dh", s/86400, s%86400/3600)
	}
}

// left is the time that remains until t, rounded up, so that "in 0s" is never said while some of it is left.
func left(t, now time.Time) string {
	const almost = time.Second - 1
	return ago(min(t.Sub(now), math.MaxInt64-almost) + almost)
}
