// A saga: book every leg of a trip, or pay back what was booked.
//
// It is written as if nothing could ever go wrong between two lines. The state lives in a plain Map;
// a crash in the middle of `book` is the executor's business: the worker is rebuilt from its oplog
// and goes on at the line it had reached.

import { charge } from "demo:bank/api";
import { getRandomBytes } from "wasi:random/random@0.2.0";

const AIRLINE = "airline";
const trips = new Map();

function book(traveller, legs) {
  if (trips.has(traveller)) return trips.get(traveller);
  if (legs.length === 0) throw "a trip needs at least one leg";
  const references = [];
  for (const leg of legs) {
    try {
      references.push(charge(leg.payer, leg.cents));
    } catch (refusal) {
      payBack(legs.slice(0, references.length));
      throw `${leg.place}: ${reason(refusal)}`;
    }
  }
  const itinerary = {
    legs,
    references,
    totalCents: legs.reduce((sum, leg) => sum + leg.cents, 0),
    bookedAt: Date.now(),
    locator: locator(),
  };
  trips.set(traveller, itinerary);
  return itinerary;
}

function payBack(legs) {
  for (const leg of legs.toReversed()) charge(AIRLINE, leg.cents);
}

// `Math.random` was seeded when the guest was built: every worker would draw the same.
function locator() {
  const digits = Array.from(getRandomBytes(3), (byte) => byte.toString(16).padStart(2, "0"));
  return digits.join("").toUpperCase();
}

function reason(refusal) {
  return refusal.payload ?? String(refusal);
}

export const workflow = {
  book,
  booked: (traveller) => trips.get(traveller),
  totals: () => {
    const booked = [...trips.values()];
    return [booked.length, booked.reduce((sum, trip) => sum + trip.totalCents, 0)];
  },
};
