//! Requests made at random from the schemas.

#![allow(
    dead_code,
    reason = "each test file uses its part of the shared generator"
)]

use bytes::{BufMut, BytesMut};
use tidegate_kafka_wire::StrBytes;
use tidegate_kafka_wire::schema::{Field, Kind, RequestSchema};

/// SplitMix64: a small generator whose every seed gives the same values everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.next() % bound).expect("small")
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
        out
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.bytes())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.bytes())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.bytes())
    }

    pub fn string(&mut self) -> String {
        let characters = ['a', 'Z', '0', '-', '_', '.', 'é', '潮', ' '];
        (0..self.below(12))
            .map(|_| characters[self.below(characters.len())])
            .collect()
    }

    pub fn str_bytes(&mut self) -> StrBytes {
        StrBytes::from_string(self.string())
    }

    pub fn blob(&mut self, below: usize) -> Vec<u8> {
        (0..self.below(below))
            .map(|_| self.bytes::<1>()[0])
            .collect()
    }
}

pub fn put_unsigned_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).expect("7 bits") | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).expect("7 bits"));
}

/// A valid body of this schema and version, with a few elements in each array.
pub fn body(schema: &RequestSchema, version: i16, rng: &mut Rng) -> BytesMut {
    wide_body(schema, version, 3, rng)
}

/// The same, with up to `innermost` elements in the arrays that have no arrays in them.
pub fn wide_body(
    schema: &RequestSchema,
    version: i16,
    innermost: usize,
    rng: &mut Rng,
) -> BytesMut {
    let mut generator = Generator {
        out: BytesMut::new(),
        version,
        flexible: schema.is_flexible(version),
        innermost,
        rng,
    };
    generator.fields(schema.fields);
    generator.out
}

struct Generator<'a> {
    out: BytesMut,
    version: i16,
    flexible: bool,
    innermost: usize,
    rng: &'a mut Rng,
}

impl Generator<'_> {
    fn fields(&mut self, fields: &[Field]) {
        for field in fields {
            if field.tag.is_none() && field.exists_in(self.version) {
                self.value(field);
            }
        }
        if self.flexible {
            self.tagged(fields);
        }
    }

    fn tagged(&mut self, fields: &[Field]) {
        let mut sent = Vec::new();
        for field in fields {
            if let Some(tag) = field.tag
                && field.exists_in(self.version)
                && self.rng.one_in(2)
            {
                let before = self.out.split();
                self.value(field);
                let value = std::mem::replace(&mut self.out, before);
                sent.push((usize::try_from(tag).expect("small"), value));
            }
        }
        if self.rng.one_in(4) {
            sent.push((
                1000 + self.rng.below(9000),
                BytesMut::from(&self.rng.blob(9)[..]),
            ));
        }
        put_unsigned_varint(&mut self.out, sent.len());
        for (tag, value) in sent {
            put_unsigned_varint(&mut self.out, tag);
            put_unsigned_varint(&mut self.out, value.len());
            self.out.put_slice(&value);
        }
    }

    fn value(&mut self, field: &Field) {
        let null = field.is_nullable_in(self.version) && self.rng.one_in(4);
        let nullable = field.is_nullable_in(self.version);
        match field.kind {
            Kind::Structure(fields) => {
                if nullable {
                    self.out.put_i8(if null { -1 } else { 1 });
                }
                if !null {
                    self.fields(fields);
                }
            }
            Kind::Structures(fields) => {
                let nested = fields.iter().any(|field| {
                    matches!(field.kind, Kind::Array(_) | Kind::Structures(_))
                        && field.exists_in(self.version)
                });
                let count = self.count(null, if nested { 3 } else { self.innermost });
                (0..count).for_each(|_| self.fields(fields));
            }
            Kind::Array(element) => {
                let count = self.count(null, self.innermost);
                (0..count).for_each(|_| self.scalar(element, false));
            }
            kind => self.scalar(&kind, null),
        }
    }

    fn count(&mut self, null: bool, most: usize) -> usize {
        let count = self.rng.below(most + 1);
        self.length((!null).then_some(count), false);
        if null { 0 } else { count }
    }

    fn length(&mut self, length: Option<usize>, short: bool) {
        if self.flexible {
            put_unsigned_varint(&mut self.out, length.map_or(0, |length| length + 1));
        } else if short {
            self.out
                .put_i16(length.map_or(-1, |length| i16::try_from(length).expect("short")));
        } else {
            self.out
                .put_i32(length.map_or(-1, |length| i32::try_from(length).expect("short")));
        }
    }

    fn scalar(&mut self, kind: &Kind, null: bool) {
        match kind {
            Kind::Bool => self.out.put_u8(u8::from(self.rng.one_in(2))),
            // Small, so that enumerations such as the isolation level are often in range.
            Kind::Int8 => self.out.put_u8(u8::from(self.rng.one_in(2))),
            Kind::Int16 => self.out.put_i16(self.rng.i16()),
            Kind::Int32 => self.out.put_i32(self.rng.i32()),
            Kind::Int64 => self.out.put_i64(self.rng.i64()),
            Kind::Float64 => self.out.put_f64(1.5 * f64::from(self.rng.i32())),
            Kind::Uuid => {
                let uuid = self.rng.bytes::<16>();
                self.out.put_slice(&uuid);
            }
            Kind::String => {
                let value = self.rng.string();
                self.length((!null).then_some(value.len()), true);
                if !null {
                    self.out.put_slice(value.as_bytes());
                }
            }
            Kind::Bytes => {
                let value = self.rng.blob(40);
                self.length((!null).then_some(value.len()), false);
                if !null {
                    self.out.put_slice(&value);
                }
            }
            Kind::Structure(_) | Kind::Array(_) | Kind::Structures(_) => {
                unreachable!("not a scalar")
            }
        }
    }
}

/// Damages a body: bytes changed, a length made huge, the end cut off or something added.
pub fn damage(body: &mut BytesMut, rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        if body.is_empty() {
            body.put_u8(rng.bytes::<1>()[0]);
            continue;
        }
        let at = rng.below(body.len());
        match rng.below(6) {
            0 => body[at] = rng.bytes::<1>()[0],
            1 => body[at] ^= 1 << rng.below(8),
            2 => body.truncate(at),
            3 => body.extend_from_slice(&rng.blob(8)),
            4 => {
                // The largest count there is, classic and compact.
                let lie: [u8; 5] = match rng.below(3) {
                    0 => [0x7f, 0xff, 0xff, 0xff, 0],
                    1 => [0xff, 0xff, 0xff, 0xff, 0x0f],
                    _ => [0x00, 0x7f, 0xff, 0xff, 0],
                };
                for (byte, lie) in body[at..].iter_mut().zip(lie) {
                    *byte = lie;
                }
            }
            _ => {
                // A plausible count, a little too large.
                body[at] = body[at].wrapping_add(1 + u8::try_from(rng.below(9)).expect("small"));
            }
        }
    }
}
