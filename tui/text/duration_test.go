package text_test

import (
	"math"
	"testing"
	"time"

	"holdfast/tui/text"
)

const (
	day     = 24 * time.Hour
	longest = time.Duration(math.MaxInt64)
	least   = time.Duration(math.MinInt64)
)

func TestDurations(t *testing.T) {
	for _, c := range []struct {
		d                 time.Duration
		age, long, signed string
	}{
		{0, "0s", "0s", "0s"},
		{300 * time.Millisecond, "0s", "0s", "1s"},
		{-300 * time.Millisecond, "0s", "0s", "0s"},
		{2 * time.Second, "2s", "2s", "2s"},
		{10700 * time.Millisecond, "10s", "10s", "11s"},
		{59999 * time.Millisecond, "59s", "59s", "60s"},
		{time.Minute, "1m", "1m", "60s"},
		{70 * time.Second, "1m", "1m 10s", "70s"},
		{99 * time.Second, "1m", "1m 39s", "99s"},
		{99001 * time.Millisecond, "1m", "1m 39s", "1m"},
		{252 * time.Second, "4m", "4m 12s", "4m"},
		{2*time.Hour + 5*time.Minute + 59*time.Second, "2h", "2h 5m", "2h"},
		{2*time.Hour + 59*time.Second, "2h", "2h", "2h"},
		{5*day + 3*time.Hour, "5d", "5d 3h", "5d"},
		{999 * day, "999d", "999d", "999d"},
		{1000 * day, "999d+", "1000d", "999d+"},
		{longest, "999d+", "106751d 23h", "999d+"},
		{-46 * time.Second, "0s", "0s", "-46s"},
		{-46900 * time.Millisecond, "0s", "0s", "-46s"},
		{-5 * time.Minute, "0s", "0s", "-5m"},
		{-2 * day, "0s", "0s", "-2d"},
		{least, "0s", "0s", "-999d+"},
	} {
		if got := text.Age(c.d); got != c.age {
			t.Errorf("Age(%v) = %q, want %q", c.d, got, c.age)
		}
		if got := text.Long(c.d); got != c.long {
			t.Errorf("Long(%v) = %q, want %q", c.d, got, c.long)
		}
		if got := text.Signed(c.d); got != c.signed {
			t.Errorf("Signed(%v) = %q, want %q", c.d, got, c.signed)
		}
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 leases": text.Count(0, "lease"), "1 entry": text.Count(1, "entry"), "2 entries": text.Count(2, "entry"),
		"999 leases": text.Count(999, "lease"), "3,412 entries": text.Count(3412, "entry"), "1,000,000 locks": text.Count(1_000_000, "lock"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
