package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A figure is a row of plots.
type figure []*plot.Plot

const (
	panelWidth  = 4.6 * vg.Inch
	panelHeight = 3 * vg.Inch
	legendLine  = 14 // points
)

// Colours that differ in lightness too, on white.
var (
	blue   = color.RGBA{R: 0x1b, G: 0x5e, B: 0xa8, A: 0xff}
	orange = color.RGBA{R: 0xd9, G: 0x6a, B: 0x0c, A: 0xff}
	green  = color.RGBA{R: 0x1f, G: 0x7a, B: 0x3a, A: 0xff}
	grey   = color.RGBA{R: 0x8a, G: 0x8a, B: 0x8a, A: 0xff}
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// newPlot has a title and both axes named, with their units.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = 11, 6
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 10, 9
	}
	p.Y.Tick.Marker = plot.TickerFunc(round)
	p.Legend.TextStyle.Font.Size, p.Legend.Left, p.Legend.Top, p.Legend.Padding = 9, true, true, 2
	p.Add(plotter.NewGrid())
	p.Y.Min = 0
	return p
}

// round marks an axis at round values.
func round(from, to float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(from, to)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", t.Value), "0"), ".")
			if t.Value >= 1000 {
				ticks[i].Label = whole(t.Value)
			}
		}
	}
	return ticks
}

// save writes the row as SVG on a white ground, each legend below its plot: lines may be
// anywhere in a plot, and texts are wider where the reader's machine has other fonts.
func (f figure) save(file string) error {
	legends, lines := make([]plot.Legend, len(f)), 0
	for i, p := range f {
		legends[i], p.Legend = p.Legend, plot.NewLegend()
		lines = max(lines, f.entries(legends[i]))
	}
	strip := vg.Length(lines * legendLine)
	c := vgsvg.New(panelWidth*vg.Length(len(f)), panelHeight+strip)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(f), PadX: 24, PadTop: 8, PadBottom: 6, PadLeft: 8, PadRight: 20}
	for i, at := range plot.Align([][]*plot.Plot{f}, tiles, draw.Crop(all, 0, 0, strip, 0))[0] {
		f[i].Draw(at)
		below := at
		below.Min.Y, below.Max.Y, below.Min.X = 4, strip+2, at.Min.X+40
		legends[i].Draw(below)
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	// Arial is as wide as the font that texts were measured with.
	text := strings.ReplaceAll(b.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	return os.WriteFile(file, []byte(text), 0o644)
}

// entries is how many lines a legend has.
func (figure) entries(l plot.Legend) int {
	r := l.Rectangle(draw.New(vgsvg.New(panelWidth, panelHeight)))
	return int(math.Ceil(float64(r.Size().Y) / legendLine))
}

// line adds a line with points.
func line(p *plot.Plot, name string, c color.Color, dashed bool, xy plotter.XYs) {
	l, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		panic(fmt.Sprintf("a line of %s: %v", name, err)) // a result is not a number
	}
	l.Color, l.Width = c, 1.6
	points.Color, points.Shape, points.Radius = c, draw.CircleGlyph{}, 2.6
	if dashed {
		l.Dashes = []vg.Length{4, 3}
	}
	p.Add(l, points)
	p.Legend.Add(name, l, points)
}

// dots adds points that belong to no line.
func dots(p *plot.Plot, name string, c color.Color, shape draw.GlyphDrawer, xy plotter.XYs) {
	s, err := plotter.NewScatter(xy)
	if err != nil {
		panic(fmt.Sprintf("points of %s: %v", name, err))
	}
	s.Color, s.Shape, s.Radius = c, shape, 4
	p.Add(s)
	p.Legend.Add(name, s)
}

// bars adds a group of bars, each with its value above.
func bars(p *plot.Plot, name string, c color.Color, offset, width vg.Length, format func(float64) string, values plotter.Values) {
	b, err := plotter.NewBarChart(values, width)
	if err != nil {
		panic(fmt.Sprintf("bars of %s: %v", name, err))
	}
	b.Color, b.LineStyle.Width, b.Offset = c, 0, offset
	p.Add(b)
	if name != "" {
		p.Legend.Add(name, b)
	}
	marks := plotter.XYLabels{}
	for i, v := range values {
		p.Y.Max = max(p.Y.Max, v*1.15)
		marks.XYs = append(marks.XYs, plotter.XY{X: float64(i), Y: v})
		marks.Labels = append(marks.Labels, format(v))
	}
	l, err := plotter.NewLabels(marks)
	if err != nil {
		panic(fmt.Sprintf("values of %s: %v", name, err))
	}
	for i := range l.TextStyle {
		l.TextStyle[i].XAlign, l.TextStyle[i].Font.Size = draw.XCenter, 8
	}
	l.Offset = vg.Point{X: offset, Y: 2}
	p.Add(l)
}

// under names the places of bars.
func under(p *plot.Plot, names ...string) {
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.X.Tick.Label.Font.Size = 8
}

// logTicks marks the given places of a logarithmic axis.
func logTicks(a *plot.Axis, format func(float64) string, at ...float64) {
	a.Scale = plot.LogScale{}
	ticks := make([]plot.Tick, len(at))
	for i, v := range at {
		ticks[i] = plot.Tick{Value: v, Label: format(v)}
	}
	a.Tick.Marker = plot.ConstantTicks(ticks)
}
