package text

import "testing"

func FuzzASCIIIsWhatTheTablesSay(f *testing.F) {
	for _, s := range []string{"a", "ab", "a\u0301b", "\\x1b", "\\", " ~", "e\u200dx", "1\ufe0f\u20e3", "─a─"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for s = Safe(s); s != ""; {
			cluster, width := first(s)
			if c, w := firstOf(s); c != cluster || w != width {
				t.Fatalf("%q: %q of %d cells, the tables say %q of %d", s, cluster, width, c, w)
			}
			s = s[len(cluster):]
		}
	})
}
