//go:build unix

package record

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ratio reports how many times as long ours takes as raw, by the medians. The two take turns, so that both have the same
// machine.
func ratio(b *testing.B, raw, ours func()) {
	b.Helper()
	const turn = 64
	lap := func(call func()) time.Duration {
		start := time.Now()
		for range turn {
			call()
		}
		return time.Since(start)
	}
	var inRaw, inOurs []time.Duration
	for b.Loop() {
		inRaw = append(inRaw, lap(raw))
		inOurs = append(inOurs, lap(ours))
	}
	median := func(laps []time.Duration) float64 {
		slices.Sort(laps)
		return float64(laps[len(laps)/2]) / turn
	}
	b.ReportMetric(median(inOurs)/median(inRaw), "ratio")
	b.ReportMetric(median(inRaw), "raw-ns")
	b.ReportMetric(median(inOurs), "ours-ns")
	b.ReportMetric(0, "ns/op")
}

// old are n files of the same content, written long ago, as all but a few are at any moment.
func old(b *testing.B, n int, data []byte) (next func() string) {
	b.Helper()
	dir, then := b.TempDir(), time.Now().Add(-time.Minute)
	paths := make([]string, n)
	for i := range paths {
		paths[i] = write(b, filepath.Join(dir, strconv.Itoa(i)), data)
		if err := os.Chtimes(paths[i], then, then); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	return func() string {
		i = (i + 1) % n
		return paths[i]
	}
}

func BenchmarkReadAndDecode(b *testing.B) {
	buf := make([]byte, 4096)
	raw := func(path string) error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if _, err := unix.Read(fd, buf); err != nil {
			return err
		}
		return unix.Close(fd)
	}
	lock, lease := load(b, "lock", "test.lock"), load(b, "leases", "agent-1.lease.json")
	for _, c := range []struct {
		name string
		data []byte
		ours func(path string) error
	}{
		{"lock", lock, func(path string) error {
			f, err := Read(path)
			if err == nil {
				_, err = DecodeLock(path, f.Data)
			}
			return err
		}},
		{"stable-lock", lock, func(path string) error {
			_, _, err := ReadLock(path)
			return err
		}},
		{"lease", lease, func(path string) error {
			f, err := Read(path)
			if err == nil {
				_, err = DecodeLease(path, f.Data)
			}
			return err
		}},
	} {
		for _, n := range []int{1, 10_000} {
			b.Run(c.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				next := old(b, n, c.data)
				check := func(call func(string) error) func() {
					return func() {
						if err := call(next()); err != nil {
							b.Fatal(err)
						}
					}
				}
				ratio(b, check(raw), check(c.ours))
			})
		}
	}
}

func BenchmarkReplace(b *testing.B) {
	data := load(b, "leases", "agent-1.lease.json")
	path := write(b, filepath.Join(b.TempDir(), "x.lease.json"), data)
	temp := path + ".raw"
	ratio(b, func() { rawWrite(b, temp, data, func() error { return unix.Rename(temp, path) }) }, func() {
		if err := Replace(path, data, ReplaceOptions{}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	data := load(b, "lock", "test.lock")
	path := filepath.Join(b.TempDir(), "x.lock")
	temp := path + ".raw"
	publish := func() error {
		if err := unix.Link(temp, path); err != nil {
			return err
		}
		return unix.Unlink(temp)
	}
	remove := func() {
		if err := unix.Unlink(path); err != nil {
			b.Fatal(err)
		}
	}
	ratio(b, func() { rawWrite(b, temp, data, publish); remove() }, func() {
		if err := Create(path, data); err != nil {
			b.Fatal(err)
		}
		remove()
	})
}

func rawWrite(b *testing.B, temp string, data []byte, publish func() error) {
	b.Helper()
	fd, err := unix.Open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := unix.Write(fd, data); err != nil {
		b.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		b.Fatal(err)
	}
	if err := publish(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkDecode(b *testing.B) {
	lock, lease := load(b, "lock", "test.lock"), load(b, "leases", "agent-1.lease.json")
	b.Run("lock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeLock("x", lock); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lease", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeLease("x", lease); err != nil {
				b.Fatal(err)
			}
		}
	})
}
