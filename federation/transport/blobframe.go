package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Blobs travel in frames: a header of fixed length, and raw bytes. Base64 in an envelope would make them a third
// longer, and a signature of each piece would say nothing that the digest of the whole does not.

// MaxPiece is how many bytes of a blob one frame carries at most.
const MaxPiece = 256 << 10

const (
	blobVersion = 1
	blobHeader  = 2 + 32 + 8 + 8 + 4
)

// A BlobCode says what became of a request about a blob. Codes cross the wire; none is ever given another meaning.
type BlobCode byte

// Codes. All but the first two are refusals.
const (
	BlobGoesOn      BlobCode = 0 // a get: the bytes follow; a put: what comes next goes to the offset
	BlobHeld        BlobCode = 1 // a put: all of the blob is on the hub's disk
	BlobNotFound    BlobCode = 2 // it is not there, or not for this peer: nobody learns which
	BlobTooLarge    BlobCode = 3 // more than the hub takes
	BlobDamaged     BlobCode = 4 // the bytes are not those of the digest; begin again
	BlobBusy        BlobCode = 5 // too much is under way; try again later
	BlobUnavailable BlobCode = 6 // the hub cannot do it now; try again later
	BlobInvalid     BlobCode = 7 // the request breaks the rules
)

var blobWords = []string{"goes on", "held", "not there, or not for this connection", "too large", "its bytes are not those of its digest",
	"too much is under way at the hub", "the hub cannot do it now", "the request breaks the rules"}

func (c BlobCode) String() string {
	if int(c) < len(blobWords) {
		return blobWords[c]
	}
	return fmt.Sprintf("code %d", byte(c))
}

// A BlobRefused is the error for a request that the hub has refused.
type BlobRefused struct{ Code BlobCode }

func (r *BlobRefused) Error() string { return "the hub refuses: " + r.Code.String() }

// A BlobFrame is a request about a blob or the answer to one.
type BlobFrame struct {
	Put    bool     // of a request: bytes are brought; the subject says it
	Code   BlobCode // of an answer
	Digest [32]byte
	Offset int64  // where the bytes begin; of the answer to a put, where the next ones go
	Size   int64  // of the whole blob
	Want   int    // of a get: how many bytes are asked for
	Data   []byte // of a put, and of the answer to a get
}

// Answer returns an answer to f.
func (f BlobFrame) Answer(code BlobCode) BlobFrame {
	return BlobFrame{Code: code, Digest: f.Digest, Offset: f.Offset, Size: f.Size}
}

func (f BlobFrame) encode() []byte {
	b := make([]byte, 0, blobHeader+len(f.Data))
	b = append(append(b, blobVersion, byte(f.Code)), f.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(f.Size))
	b = binary.BigEndian.AppendUint32(b, uint32(max(f.Want, len(f.Data))))
	return append(b, f.Data...)
}

var errFrame = errors.New("not a frame of a blob")

// parseBlob reads a frame. A get has no bytes behind the header; of every other frame the header says how many there are.
func parseBlob(b []byte, get bool) (f BlobFrame, err error) {
	if len(b) < blobHeader || b[0] != blobVersion {
		return f, fmt.Errorf("%w: %d bytes, version %d is wanted", errFrame, len(b), blobVersion)
	}
	f.Code = BlobCode(b[1])
	f.Digest = [32]byte(b[2:34])
	offset, size := binary.BigEndian.Uint64(b[34:]), binary.BigEndian.Uint64(b[42:])
	n := binary.BigEndian.Uint32(b[50:])
	f.Offset, f.Size, f.Data = int64(offset), int64(size), b[blobHeader:]
	switch {
	case f.Offset < 0 || f.Size < f.Offset || n > MaxPiece || int64(n) > f.Size-f.Offset:
		return f, fmt.Errorf("%w: offset %d, size %d, %d bytes", errFrame, offset, size, n)
	case get && (n == 0 || len(f.Data) > 0), !get && len(f.Data) != int(n):
		return f, fmt.Errorf("%w: %d bytes are announced and %d are there", errFrame, n, len(f.Data))
	}
	if get {
		f.Want = int(n)
	}
	return f, nil
}

// parseBlobRequest reads what a peer sends.
func parseBlobRequest(b []byte, put bool) (BlobFrame, error) {
	f, err := parseBlob(b, !put)
	if err == nil && f.Code != 0 {
		err = fmt.Errorf("%w: a request with code %d", errFrame, f.Code)
	}
	f.Put = put
	return f, err
}

// parseBlobAnswer reads what the hub says to request. It is about the same blob, and a get is answered with bytes from where it asked.
func parseBlobAnswer(b []byte, request BlobFrame) (BlobFrame, error) {
	f, err := parseBlob(b, false)
	switch {
	case err != nil:
		return f, err
	case f.Code > BlobHeld:
		return f, &BlobRefused{f.Code}
	case f.Digest != request.Digest || f.Size != request.Size:
		return f, fmt.Errorf("%w: an answer about another blob", errFrame)
	case !request.Put && (f.Code != BlobGoesOn || f.Offset != request.Offset || len(f.Data) == 0 || len(f.Data) > request.Want):
		return f, fmt.Errorf("%w: an answer that was not asked for: code %d, %d bytes at %d", errFrame, f.Code, len(f.Data), f.Offset)
	case request.Put && len(f.Data) > 0:
		return f, fmt.Errorf("%w: bytes in answer to a put", errFrame)
	}
	return f, nil
}
