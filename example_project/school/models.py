"""What the platform keeps: classes, bookings, uploads, and the letters it has sent."""

from __future__ import annotations

from django.db import models


class Lesson(models.Model):
    """One class at one instant."""

    title = models.CharField(max_length=200)
    instructor = models.CharField(max_length=100)
    starts_at = models.DateTimeField()

    class Meta:
        ordering = ("starts_at",)

    def __str__(self) -> str:
        return self.title


class Booking(models.Model):
    """A learner's place in a class; ``reminder`` is the id of the run that will remind them."""

    lesson = models.ForeignKey(Lesson, on_delete=models.CASCADE)
    email = models.EmailField()
    reminder = models.CharField(max_length=63, blank=True, editable=False)

    def __str__(self) -> str:
        return f"{self.email} in {self.lesson}"


class Upload(models.Model):
    """A file that a learner sent and did not attach to anything yet."""

    name = models.CharField(max_length=200)
    uploaded_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Letter(models.Model):
    """A mail that went out. The unique key is the fire id: a repeated attempt cannot send a second one."""

    key = models.CharField(max_length=80, unique=True)
    recipient = models.CharField(max_length=200)
    subject = models.CharField(max_length=200)
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.subject} to {self.recipient}"
